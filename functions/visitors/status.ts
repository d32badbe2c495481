import type { ConditionUpdate } from '#sdk'
import { type App, namesOf, type Tier } from './parts.ts'
import type { VisitorsObject } from './resource.ts'
import { BACKEND_PORT, FRONTEND_PORT, hostOf } from './web.ts'

const PHASES = [
  ['mysql', 'Database'],
  ['backend', 'Backend'],
  ['frontend', 'Frontend'],
] as const

export function statusOf(object: VisitorsObject, { deployments, rollouts, services }: App) {
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
