import {
  Deployment,
  Job,
  type KubeObject,
  PersistentVolumeClaim,
  type Run,
  reconciler,
  rolloutOf,
  Secret,
  Service,
} from '#sdk'
import { cleanUpFor, endOf } from './clean-up.ts'
import { claimFor, credentialsIn, databaseFor, databaseService, secretFor } from './database.ts'
import { type App, namesOf } from './parts.ts'
import { VisitorsApp } from './resource.ts'
import { statusOf } from './status.ts'
import { backendFor, backendService, frontendFor, frontendService } from './web.ts'

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
