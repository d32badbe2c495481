import { type AgentPod, agentPod, storeSource, tryOf } from '#functions/etcd-backup'
import { shortName } from '#sdk'
import type { RestoreObject } from './resource.ts'

const LONGEST_NAME = 63

/** Returns the pod that reads the snapshot to its end. Its name identifies the attempt. */
export function verifyPod({ metadata, spec }: RestoreObject, failures: number): AgentPod {
  const { name, uid, generation } = metadata
  const run = tryOf([uid, generation, failures])
  return agentPod(
    {
      name: `${shortName(name, LONGEST_NAME - run.length - 8)}-verify-${run}`,
      labels: { app: 'etcd-restore', etcd_restore: shortName(name, LONGEST_NAME) },
    },
    {
      image: spec.agentImage,
      command: 'verify',
      args: [],
      store: storeSource(spec.backupStorageType, spec),
      seconds: spec.timeoutInSecond,
    },
  )
}
