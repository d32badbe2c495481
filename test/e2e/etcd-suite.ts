import { afterAll, beforeAll } from 'vitest'
import { EtcdClusters } from './etcd-clusters.ts'

/** A cluster with EtcdClusters for all tests of the suite in which it is called, from the first one to the last one. */
export function sharedEtcds(): EtcdClusters {
  const etcds = new EtcdClusters()
  beforeAll(() => etcds.begin(), 300_000)
  afterAll(() => etcds[Symbol.asyncDispose]())
  return etcds
}
