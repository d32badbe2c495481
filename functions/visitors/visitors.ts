import {
  type ConditionUpdate,
  Deployment,
  Job,
  type KubeObject,
  type ObservedBy,
  PersistentVolumeClaim,
  type Run,
  reconciler,
  rolloutOf,
  Secret,
  Service,
} from 'fairlead'
import { claimFor, credentialsEnv, credentialsIn, databaseFor, databaseService, secretFor } from './database.ts'
import { type App, DATABASE, env, MYSQL_PORT, namesOf, type Tier } from './parts.ts'
import { VisitorsApp, type VisitorsObject } from './resource.ts'
import { BACKEND_PORT, backendFor, backendService, FRONTEND_PORT, frontendFor, frontendService, hostOf } from './web.ts'

const owns = [Secret, PersistentVolumeClaim, Deployment, Service, Job] as const
type VisitorsRun = Run<typeof VisitorsApp, (typeof owns)[number], never>

/** The interval of checks for a Job without an end. The end of the Job runs the function as well. */
const LOOK_AGAIN_S = 3600

/** Runs database, backend and front end of one app. Each part starts when the parts that it needs are ready. */
export const visitors = reconciler({
  name: 'visitors',
  for: VisitorsApp,
  owns,
  reconcile(run) {
    const app = observe(run)
    return { apply: desired(run, app), ...statusOf(run.object, app) }
  },
  finalize(run) {
    const app = observe(run)
    const job = cleanUpFor(run.object)
    if (job === undefined || app.deployments.mysql === undefined) return undefined
    const { isOver, failure } = endOf(run.owned(Job)[0])
    if (!isOver) return { apply: [...desired(run, app), job], requeueAfter: LOOK_AGAIN_S }
    if (failure === undefined) return undefined
    const message = `the clean-up of VisitorsApp ${run.object.metadata.name} has failed: ${failure}`
    return { events: [{ type: 'Warning', reason: 'CleanUpFailed', message }] }
  },
})

function observe({ object, owned }: VisitorsRun): App {
  const names = namesOf(object)
  const deployment = (name: string) => owned(Deployment).find(({ metadata }) => metadata.name === name)
  const service = (name: string) => owned(Service).find(({ metadata }) => metadata.name === name)
  const mysql = deployment(names.mysql)
  const backend = deployment(names.backend)
  const frontend = deployment(names.frontend)
  return {
    deployments: { mysql, backend, frontend },
    rollouts: { mysql: rolloutOf(mysql), backend: rolloutOf(backend), frontend: rolloutOf(frontend) },
    services: { backend: service(names.backendService), frontend: service(names.frontendService) },
  }
}

/** Returns the desired objects. A part that was started once stays, whatever happens to the parts that it needs. */
function desired({ object, owned, secret }: VisitorsRun, { deployments, rollouts, services }: App): KubeObject[] {
  const credentials = credentialsIn(owned(Secret)[0], secret)
  const claim = claimFor(object, owned(PersistentVolumeClaim)[0])
  const apply: (KubeObject | undefined)[] = [
    secretFor(object, credentials),
    claim,
    databaseService(object),
    databaseFor(object, credentials, claim !== undefined),
  ]
  if (rollouts.mysql.ready > 0 || deployments.backend || services.backend)
    apply.push(backendService(object), backendFor(object, credentials))
  if (rollouts.backend.ready > 0 || deployments.frontend || services.frontend)
    apply.push(frontendService(object), frontendFor(object, services.backend, deployments.frontend))
  return apply.filter((one) => one !== undefined)
}

type JobObject = ObservedBy<typeof Job>

/** Returns the Job that runs before the app is deleted. Undefined: the spec has none. */
function cleanUpFor(object: VisitorsObject): JobObject | undefined {
  const { cleanUp } = object.spec
  if (cleanUp === undefined) return undefined
  const { cleanUp: name, mysqlService } = namesOf(object)
  const { username, password } = credentialsEnv(object)
  return Job.of({
    metadata: { name },
    spec: {
      backoffLimit: 2,
      activeDeadlineSeconds: cleanUp.timeoutSeconds,
      template: {
        spec: {
          restartPolicy: 'Never',
          enableServiceLinks: false,
          containers: [
            {
              name: 'clean-up',
              image: cleanUp.image,
              command: cleanUp.command,
              env: [
                ...env({
                  MYSQL_DATABASE: DATABASE,
                  MYSQL_SERVICE_HOST: mysqlService,
                  MYSQL_SERVICE_PORT: String(MYSQL_PORT),
                }),
                { name: 'MYSQL_USERNAME', ...username },
                { name: 'MYSQL_PASSWORD', ...password },
              ],
            },
          ],
        },
      },
    },
  })
}

/** Returns how a Job has ended, if it has. */
function endOf(job: JobObject | undefined): { isOver: boolean; failure?: string } {
  const ended = job?.status?.conditions?.find(
    ({ type, status }) => status === 'True' && (type === 'Complete' || type === 'Failed'),
  )
  if (ended === undefined) return { isOver: false }
  return ended.type === 'Complete' ? { isOver: true } : { isOver: true, failure: ended.message ?? ended.reason ?? '' }
}

const PHASES = [
  ['mysql', 'Database'],
  ['backend', 'Backend'],
  ['frontend', 'Frontend'],
] as const

function statusOf(object: VisitorsObject, { deployments, rollouts, services }: App) {
  const { status } = object
  const [, phase] = PHASES.find(([tier]) => !rollouts[tier].isComplete) ?? [undefined, 'Ready' as const]
  const imageOf = (tier: Tier, before: string | undefined) =>
    rollouts[tier].isComplete ? deployments[tier]?.spec?.template.spec?.containers[0]?.image : before
  const names = namesOf(object)
  const endpoint = (tier: 'backend' | 'frontend', service: string, port: number) => {
    const { spec } = services[tier] ?? {}
    if (spec === undefined) return undefined
    const nodePort = spec.ports?.[0]?.nodePort
    return nodePort === undefined ? `http://${hostOf(object, service)}:${port}` : `port ${nodePort} of every node`
  }
  const ready = { database: rollouts.mysql.ready, backend: rollouts.backend.ready, frontend: rollouts.frontend.ready }
  return {
    status: {
      phase,
      databaseImage: imageOf('mysql', status.databaseImage),
      backendImage: imageOf('backend', status.backendImage),
      frontendImage: imageOf('frontend', status.frontendImage),
      readyReplicas: ready,
      endpoints: {
        frontend: endpoint('frontend', names.frontendService, FRONTEND_PORT),
        backend: endpoint('backend', names.backendService, BACKEND_PORT),
      },
    },
    conditions: [readiness(phase, object, ready)],
  }
}

function readiness(
  phase: string,
  { spec }: VisitorsObject,
  { database, backend, frontend }: { database: number; backend: number; frontend: number },
): ConditionUpdate {
  return {
    type: 'Ready',
    status: phase === 'Ready' ? 'True' : 'False',
    reason: phase === 'Ready' ? 'AllReady' : `WaitsFor${phase}`,
    message: `ready: database ${database} of 1, backend ${backend} of ${spec.size}, front end ${frontend} of 1`,
  }
}
