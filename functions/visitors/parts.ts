import { Deployment, deploymentName, type ObservedBy, type Rollout, Service, serviceName, shortName } from 'fairlead'
import type { VisitorsObject } from './resource.ts'

export type DeploymentObject = ObservedBy<typeof Deployment>
export type ServiceObject = ObservedBy<typeof Service>
export type Tier = 'mysql' | 'backend' | 'frontend'

/** The existing objects of one app. */
export interface App {
  deployments: Record<Tier, DeploymentObject | undefined>
  rollouts: Record<Tier, Rollout>
  services: Record<'backend' | 'frontend', ServiceObject | undefined>
}

type PodSpec = NonNullable<NonNullable<DeploymentObject['spec']>['template']['spec']>
type Container = PodSpec['containers'][number]

export const DATABASE = 'visitors'
export const MYSQL_PORT = 3306

export const namesOf = ({ metadata: { name } }: VisitorsObject) => ({
  mysql: deploymentName(`${name}-mysql`),
  backend: deploymentName(`${name}-backend`),
  frontend: deploymentName(`${name}-frontend`),
  auth: shortName(`${name}-mysql-auth`),
  data: shortName(`${name}-mysql-data`),
  cleanUp: shortName(`${name}-clean-up`, 63),
  mysqlService: serviceName(`${name}-mysql-service`),
  backendService: serviceName(`${name}-backend-service`),
  frontendService: serviceName(`${name}-frontend-service`),
})

const labelsOf = ({ metadata }: VisitorsObject, tier: Tier): Record<string, string> => ({
  app: 'visitors',
  visitorssite_cr: shortName(metadata.name, 63),
  tier,
})

export interface Part {
  tier: Tier
  replicas: number
  container: Container
  volumes?: PodSpec['volumes']
  /** Annotations of pods. A change replaces the pods. */
  annotations?: Record<string, string>
  /** True: two pods must never run at the same time. */
  recreate?: boolean
}

export function deploymentFor(object: VisitorsObject, part: Part): DeploymentObject {
  const { tier, replicas, container, volumes, annotations, recreate = false } = part
  const labels = labelsOf(object, tier)
  return Deployment.of({
    metadata: { name: namesOf(object)[tier], labels },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      ...(recreate && { strategy: { type: 'Recreate' } }),
      template: {
        metadata: { labels, ...(annotations && { annotations }) },
        // With service links, a Service called mysql-service would put MYSQL_SERVICE_PORT=tcp://… into every pod.
        spec: { enableServiceLinks: false, containers: [container], ...(volumes && { volumes }) },
      },
    },
  })
}

export const env = (values: Record<string, string>): NonNullable<Container['env']> =>
  Object.entries(values).map(([name, value]) => ({ name, value }))

export function serviceFor(
  object: VisitorsObject,
  tier: Tier,
  name: string,
  spec: Partial<NonNullable<ServiceObject['spec']>>,
): ServiceObject {
  const labels = labelsOf(object, tier)
  return Service.of({ metadata: { name, labels }, spec: { selector: labels, ...spec } })
}

/** Returns the ports of a Service, with a node port only if one is requested. */
export function reachable(
  { spec: { service } }: VisitorsObject,
  port: number,
  nodePort: number | undefined,
): Partial<NonNullable<ServiceObject['spec']>> {
  const ports = [{ port, targetPort: port, protocol: 'TCP' }]
  if (service.type === 'ClusterIP') return { type: 'ClusterIP', ports }
  return { type: 'NodePort', ports: ports.map((one) => ({ ...one, ...(nodePort !== undefined && { nodePort }) })) }
}
