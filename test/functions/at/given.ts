import type { KubeObject } from '#contracts'
import { at } from '#functions/at'
import { outcomeOf } from '#testing'

export const BOOK = { schedule: '2019-04-12T10:12:00Z', command: 'echo YAY' }
export const DUE = '2019-04-12T10:12:00.000Z'

export interface GivenAt {
  name?: string
  uid?: string
  spec?: unknown
  phase?: string
  status?: Record<string, unknown>
  meta?: Record<string, unknown>
}

export const atObject = (given: GivenAt): KubeObject => {
  const { name = 'example-at', uid = 'this-one', spec = BOOK, phase, status, meta } = given
  return {
    apiVersion: 'cnat.programming-kubernetes.info/v1alpha1',
    kind: 'At',
    metadata: { name, namespace: 'default', uid, ...meta },
    spec,
    ...((phase ?? status) && { status: { ...(phase && { phase }), ...status } }),
  }
}

export interface GivenPod {
  name?: string
  phase?: string
  ownerUid?: string
  deleted?: boolean
  created?: string
  /** The exit code of its container. */
  exitCode?: number
  finishedAt?: string
  waiting?: string
  reason?: string
}

export const podObject = (given: GivenPod): KubeObject => {
  const { name = 'example-at-pod', phase = 'Pending', ownerUid = 'this-one', deleted = false } = given
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      namespace: 'default',
      ...(given.created !== undefined && { creationTimestamp: given.created }),
      ...(deleted && { deletionTimestamp: DUE }),
      ownerReferences: [
        {
          apiVersion: 'cnat.programming-kubernetes.info/v1alpha1',
          kind: 'At',
          name: 'example-at',
          uid: ownerUid,
          controller: true,
        },
      ],
    },
    status: podStatus(phase, given),
  }
}

/** Returns a pod status as the kubelet writes it. */
export function podStatus(phase: string, { exitCode, finishedAt, waiting, reason }: GivenPod = {}): object {
  const terminated = { exitCode, reason: exitCode === 0 ? 'Completed' : 'Error', finishedAt }
  const state = waiting === undefined ? { terminated } : { waiting: { reason: waiting } }
  return {
    phase,
    ...(reason !== undefined && { reason }),
    ...((exitCode ?? waiting) !== undefined && { containerStatuses: [{ name: 'busybox', state }] }),
  }
}

/** What the function decides on these objects at this time. */
export const decide = (given: GivenAt, pods: GivenPod[] = [], now: string = DUE) =>
  outcomeOf(at, { object: atObject(given), others: pods.map(podObject), now })

export const THE_POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'example-at-pod', labels: { app: 'example-at' } },
  spec: {
    containers: [{ name: 'busybox', image: 'busybox', command: ['echo', 'YAY'] }],
    restartPolicy: 'Never',
  },
}
