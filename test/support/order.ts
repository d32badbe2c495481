import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files that take longest, in the order that they begin: so none of them is left over at the end, and those with the
 * one real node of a machine, which take turns, are far enough apart not to wait for each other.
 */
const FIRST = [
  'e2e/demo',
  'e2e/chaos-servers',
  'queue/crash',
  'bridge/dynamic',
  'e2e/outage',
  'e2e/life',
  'queue/conformance/broker',
  'bridge/bridge',
  'cli/guard',
  'e2e/visitors',
  'local/cluster',
  'bridge/kill',
  'cli/commands',
  'queue/laws',
  'e2e/memcached',
  'queue/model',
  'queue/replicas',
  'local/node',
  'e2e/rights',
  'crds/api-server',
  'dispatch/own-writes',
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
