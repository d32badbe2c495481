import { join } from 'node:path'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { ownershipMark, RECONCILER_ANNOTATION } from '#reconcile'

const SDK = join(import.meta.dirname, '../../sdk/index.ts')
const SITES = { group: 'fleet.example.com', version: 'v1', resource: 'sites' }
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }

/** A module with one function for Sites, which gives each one a ConfigMap. `body`: of the function. `spec`: its schema. */
export const siteModule = (
  body = 'return { apply: [map(spec.image)] }',
  spec = 'z.object({ image: z.string(), note: z.string().optional() })',
  more = '',
) => `
import { ConfigMap, reconciler, resource, z } from ${JSON.stringify(SDK)}
const Site = resource({
  group: 'fleet.example.com', version: 'v1', kind: 'Site', plural: 'sites', spec: ${spec}, status: z.object({ image: z.string().optional() }),
})
const map = (image) => ConfigMap.of({ metadata: {}, data: { image } })
export const site = reconciler({
  name: 'site', for: Site, owns: [ConfigMap], ${more}
  reconcile({ object: { metadata, spec } }) { ${body} },
})
`

export async function clientOf(kubeconfig: string): Promise<KubeClient> {
  return createKubeClient({ ...(await loadKubeConfig({ paths: [kubeconfig] })), userAgent: 'fairlead-test' })
}

/** Creates the Sites from `from` to `count`, and their ConfigMaps, as a dispatcher leaves them. */
export async function createFleet(kube: KubeClient, namespace: string, count: number, from = 0): Promise<void> {
  const indexes = Array.from({ length: count - from }, (_, index) => from + index)
  await forEachAtMost(16, indexes, async (index) => {
    const site = await kube.create<KubeObject>(resourcePath(SITES, namespace), {
      apiVersion: 'fleet.example.com/v1',
      kind: 'Site',
      metadata: { name: `site-${index}`, labels: { tier: index % 10 === 0 ? 'gold' : 'iron' } },
      spec: { image: `nginx:${index % 2}`, ...(index === 7 && { note: 'keep' }) },
    })
    const { name, uid = '' } = site.metadata
    const owner = {
      apiVersion: site.apiVersion,
      kind: site.kind,
      name,
      uid,
      controller: true,
      blockOwnerDeletion: true,
    }
    const map = {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace, ownerReferences: [owner] },
      data: { image: `nginx:${index % 2}` },
    }
    const annotations = { [RECONCILER_ANNOTATION]: ownershipMark('site', site, map) }
    await kube.apply(
      resourcePath(CONFIG_MAPS, namespace, name),
      { ...map, metadata: { ...map.metadata, annotations } },
      {
        fieldManager: 'fairlead-site',
      },
    )
  })
}

/** The versions of all objects of the fleet. */
export async function versionsOf(kube: KubeClient): Promise<string[]> {
  const versions: string[] = []
  for (const ref of [SITES, CONFIG_MAPS])
    for await (const { items } of kube.list(resourcePath(ref)))
      versions.push(...items.map(({ metadata }) => `${metadata.uid} ${metadata.resourceVersion}`))
  return versions.sort()
}
