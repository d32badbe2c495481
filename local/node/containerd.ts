import { mkdir, statfs, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { BinaryPaths } from '../build.ts'
import { POD_CIDR } from './addresses.ts'
import type { NodeOptions } from './options.ts'
import type { NodePaths } from './paths.ts'

export const PAUSE_IMAGE = 'registry.k8s.io/pause:3.10'

/** The file system type of an overlay mount, on which another overlay cannot be mounted. */
const OVERLAYFS_MAGIC = 0x794c7630

/** Starts containerd, which pulls the images of all registries from `mirror`. */
export async function startContainerd(options: NodeOptions, paths: NodePaths, mirror: string): Promise<void> {
  const folders = { cni: `${paths.run}/cni`, certs: `${paths.run}/certs.d` }
  await mkdir(folders.cni, { recursive: true })
  await mkdir(`${folders.certs}/_default`, { recursive: true })
  await writeFile(`${folders.certs}/_default/hosts.toml`, mirrorConfig(mirror))
  await writeFile(`${folders.cni}/10-fairlead.conflist`, JSON.stringify(networkConfig(paths)))
  await writeFile(runcScript(paths), withoutSeccomp(options.binaries('runc')), { mode: 0o755 })
  const overlay = (await statfs(paths.state)).type === OVERLAYFS_MAGIC
  const config = containerdConfig({
    paths,
    folders,
    snapshotter: overlay ? 'native' : 'overlayfs',
    binaries: options.binaries,
  })
  await writeFile(`${paths.run}/containerd.toml`, config)
  await options.processes.start({
    name: 'containerd',
    command: options.binaries('containerd'),
    args: ['--config', `${paths.run}/containerd.toml`],
    stopSignal: 'SIGKILL',
  })
}

/** The script is not on /run, which many systems mount with noexec. */
function runcScript(paths: NodePaths): string {
  return `${paths.state}/runc`
}

/**
 * The kubelet sets a seccomp filter for every pod, and runc supports them only if it is built with the headers of
 * libseccomp, which few machines have. The script removes the filter from the container's configuration: it renames the
 * key to one that runc ignores. Quotes inside of a JSON string would be escaped, so no other text matches.
 */
function withoutSeccomp(runc: string): string {
  return `#!/bin/sh
for arg; do
  [ "$before" != --bundle ] || sed -i 's/"seccomp":{/"unsupported-seccomp":{/' "$arg/config.json"
  before=$arg
done
exec '${runc}' "$@"
`
}

/**
 * The mirror is also the `server`, so that a pull of a missing image fails at once instead of asking public registries.
 */
function mirrorConfig(mirror: string): string {
  return `server = "${mirror}"\n[host."${mirror}"]\n  capabilities = ["pull", "resolve"]\n`
}

/** Each pod has its own link to the machine (ptp). Without a bridge, services work without br_netfilter. */
function networkConfig(paths: NodePaths): object {
  const ipam = {
    type: 'host-local',
    dataDir: `${paths.run}/ipam`,
    ranges: [[{ subnet: POD_CIDR }]],
    routes: [{ dst: '0.0.0.0/0' }],
  }
  return {
    cniVersion: '1.0.0',
    name: 'fairlead',
    plugins: [
      { type: 'ptp', ipMasq: false, ipam },
      { type: 'portmap', backend: 'nftables', capabilities: { portMappings: true } },
    ],
  }
}

interface ContainerdSettings {
  paths: NodePaths
  folders: { cni: string; certs: string }
  snapshotter: 'overlayfs' | 'native'
  binaries: BinaryPaths
}

/**
 * restrict_oom_score_adj: without it, no pod could start if CAP_SYS_RESOURCE is missing. netns_mounts_under_state_dir:
 * all mounts are below the node's own folder, so that clean-up finds them.
 */
function containerdConfig({ paths, folders, snapshotter, binaries }: ContainerdSettings): string {
  const plugins = (['ptp', 'host-local', 'portmap', 'loopback'] as const).map((name) => dirname(binaries(name)))
  return `
version = 3
root = "${paths.state}/containerd"
state = "${paths.run}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "${paths.containerdSocket}"
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "${paths.run}/s"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "${snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "${PAUSE_IMAGE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "${folders.certs}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ${JSON.stringify([...new Set(plugins)])}
    conf_dir = "${folders.cni}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "${binaries('containerd-shim-runc-v2')}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "${runcScript(paths)}"
      Root = "${paths.run}/runc"
      SystemdCgroup = false
`
}
