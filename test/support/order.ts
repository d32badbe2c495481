import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files that take longest, in the order that they begin: so none of them is left over at the end, those with the one
 * real node of a machine, which take turns, are far enough apart not to wait for each other, and beside those that wait
 * are others that compute.
 */
const FIRST = [
  'e2e/demo',
  'e2e/chaos',
  'e2e/chaos-servers',
  'bridge/dynamic',
  'bridge/bridge',
  'e2e/outage',
  'e2e/lost-streams',
  'queue/crash',
  'cli/guard',
  'e2e/life',
  'e2e/on-node',
  'queue/conformance/broker',
  'bridge/kill',
  'queue/model-mutations',
  'queue/model',
  'e2e/rights',
  'local/cluster',
  'queue/laws',
  'crds/api-server',
  'queue/no-room',
  'bridge/owed',
  'docs/tutorial',
  'bridge/restored',
  'cli/uninstalled',
  'cli/dry-run',
  'bridge/reflector',
  'dispatch/http-runs',
  'events/replicas',
  'dispatch/own-writes',
  'queue/failure',
  'queue/replicas',
  'bridge/oversize',
  'local/node',
  'cli/commands',
  'bridge/many',
  'queue/conformance/controller',
  'local/reaper',
  'e2e/confidential',
  'e2e/http',
  'queue/ambiguous',
  'dispatch/runs',
  'queue/conformance/workqueue',
  'queue/scale',
  'kube/api-server',
  'cli/testing/operators',
  'queue/conformance/priority-queue',
  'local/node-kwok',
  'kube/watch',
  'local/development',
  'functions/visitors/visitors',
  'cli/events',
  'dispatch/serving',
  'queue/lanes',
  'queue/laps',
]

/** The same order in every run, on every machine. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).toSorted((a, b) => placeOf(a) - placeOf(b))
  }
}

function placeOf({ moduleId }: TestSpecification): number {
  const place = FIRST.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`))
  return place < 0 ? FIRST.length : place
}
