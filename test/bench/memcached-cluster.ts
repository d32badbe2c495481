import { Deployment, Pod, reconciler } from '#sdk'
import { deploymentFor, Memcached } from './memcached.ts'

const Server = { ...Pod, selector: 'app=memcached', within: 'Cluster' } as const

/** A Memcached that also reads the pods of the whole cluster that match a selector. */
export const memcached = reconciler({
  name: 'memcached',
  for: Memcached,
  owns: [Deployment],
  related: [Server],
  reconcile({ object, related }) {
    return { apply: [deploymentFor(object)], status: { nodes: related(Server).map(({ metadata }) => metadata.name) } }
  },
})
