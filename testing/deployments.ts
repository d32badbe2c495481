import { Deployment, type ObservedBy, Pod } from '#sdk'
import type { Simulation } from './simulation.ts'

/**
 * Plays the Deployment controller and the kubelet as the `cluster` of a simulation: all pods of each Deployment exist
 * and are ready at once.
 *
 * @example
 * import { deploymentsRun, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object], cluster: deploymentsRun })
 * await world.runUntilIdle()
 * world.object?.status?.ready // => 1
 */
export function deploymentsRun(world: Simulation): void {
  for (const deployment of world.list(Deployment)) {
    const replicas = deployment.spec?.replicas ?? 1
    const names = Array.from({ length: replicas }, (_, index) => `${deployment.metadata.name}-${index}`)
    for (const name of names)
      if (!world.list(Pod).some((pod) => pod.metadata.name === name)) create(world, deployment, name)
    const surplus = world.list(Pod).filter((pod) => isOf(deployment, pod) && !names.includes(pod.metadata.name))
    for (const pod of surplus) world.memory.delete(pod)
    const { generation = 1 } = deployment.metadata
    const counts = { replicas, readyReplicas: replicas, updatedReplicas: replicas, availableReplicas: replicas }
    world.memory.patch(deployment, { status: { observedGeneration: generation, ...counts } })
  }
}

type Deployed = ObservedBy<typeof Deployment>

const isOf = ({ metadata }: Deployed, pod: ObservedBy<typeof Pod>): boolean =>
  pod.metadata.ownerReferences?.some(({ uid }) => uid === metadata.uid) === true

function create(world: Simulation, { apiVersion, kind, metadata, spec }: Deployed, name: string): void {
  const { name: owner, namespace, uid = '' } = metadata
  const labels = spec?.template.metadata?.labels
  world.memory.create({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      ...(namespace !== undefined && { namespace }),
      ...(labels && { labels }),
      ownerReferences: [{ apiVersion, kind, name: owner, uid, controller: true }],
    },
    status: { phase: 'Running' },
  })
}
