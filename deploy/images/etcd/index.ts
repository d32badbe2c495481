import { addImage, type BinaryName, ensureBinaries, silentProgress } from '#lab'

const VERSIONS: readonly (readonly [version: string, binary: BinaryName])[] = [
  ['3.6.16', 'etcd-3.6'],
  ['3.7.3', 'etcd'],
]

/**
 * Adds substitutes for the images of etcd to a registry, under their own names: etcd as it is built for `local`,
 * without a shell.
 */
export async function addEtcdImages(registryUrl: string): Promise<void> {
  const binaries = await ensureBinaries(
    VERSIONS.map(([, binary]) => binary),
    silentProgress,
  )
  for (const [version, binary] of VERSIONS)
    await addImage(registryUrl, `quay.io/coreos/etcd:v${version}`, {
      files: { 'usr/local/bin/etcd': { from: binaries(binary) } },
      config: { Entrypoint: ['/usr/local/bin/etcd'] },
    })
}
