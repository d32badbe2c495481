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
  'queue/crash',
  'e2e/outage',
  'queue/model',
  'local/cluster',
  'e2e/life',
  'cli/commands',
  'queue/conformance/broker',
  'bridge/dynamic',
  'bridge/bridge',
  'e2e/visitors',
  'cli/guard',
  'bridge/kill',
  'queue/model-mutations',
  'queue/laws',
  'crds/api-server',
  'e2e/memcached',
  'docs/tutorial',
  'e2e/rights',
  'local/node',
  'queue/replicas',
  'dispatch/own-writes',
  'events/replicas',
  'e2e/confidential',
  'bridge/reflector',
  'dispatch/http-runs',
  'local/node-kwok',
  'local/reaper',
  'queue/failure',
  'e2e/http',
  'queue/conformance/controller',
  'queue/ambiguous',
  'kube/api-server',
  'dispatch/runs',
  'local/build',
  'local/development',
  'queue/conformance/workqueue',
  'cli/testing/operators',
  'local/nats',
  'queue/conformance/priority-queue',
  'cli/isolation',
  'kube/watch',
  'cli/events',
  'queue/laps',
  'cli/queue',
  'deploy/alerts',
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
