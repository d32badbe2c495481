import { VisitorsApp } from '#functions/visitors'
import { Deployment, Secret, Service } from '#sdk'
import { deploymentsRun, jobsRun, type Scenario, type Simulation } from '#testing'

export type Spec = Parameters<typeof VisitorsApp.of>[0]['spec']

export const app = (name: string, spec: Spec = {}) => VisitorsApp.of({ metadata: { name, namespace: 'default' }, spec })

/** Deployments run, and the API server chooses ports of nodes. */
export function playCluster(world: Simulation): void {
  deploymentsRun(world)
  for (const service of world.list(Service)) {
    const [port] = service.spec?.ports ?? []
    if (service.spec?.type !== 'NodePort' || port === undefined || port.nodePort !== undefined) continue
    const nodePort = service.metadata.name.includes('backend') ? 31_000 : 32_000
    world.memory.patch(service, { spec: { ports: [{ ...port, nodePort }] } })
  }
}

export const cleanUp = { image: 'backup:1', command: ['/dump'] }
export const end = (type: string) => ({ status: { conditions: [{ type, status: 'True', message: 'exit code 1' }] } })

/** What may happen to a VisitorsApp. */
export const scenario: Scenario = {
  objects: [app('ex', { service: { type: 'NodePort' }, database: { storage: { size: '1Gi' } }, cleanUp })],
  cluster: [playCluster, jobsRun],
  // The Job of the clean-up has a limit, which the Job controller keeps.
  finalizeSeconds: Infinity,
  steps: [
    [
      ['it grows', (world) => world.edit({ spec: { size: 3 } })],
      ['its title changes', (world) => world.edit({ spec: { title: 'Other' } })],
      ['its Secret is deleted', (world) => world.delete(Secret)],
    ],
    ['its Deployments are deleted', (world) => world.delete(Deployment)],
    ['its services are inside only', (world) => world.edit({ spec: { service: { type: 'ClusterIP' } } })],
    ['it is deleted', (world) => world.delete()],
  ],
}
