import type { KubeObject, RunInput } from '#contracts'
import { at } from '#functions/at'
import { toInvoke } from '#sdk'

const invoke = toInvoke(at)
const silent = { debug() {}, info() {}, warn() {}, error() {} }

export const BOOK = { schedule: '2019-04-12T10:12:00Z', command: 'echo YAY' }
export const DUE = '2019-04-12T10:12:00.000Z'

export interface GivenAt {
  name?: string
  uid?: string
  spec?: unknown
  phase?: string | undefined
  meta?: Record<string, unknown>
}

export const atObject = ({ name = 'example-at', uid = 'this-one', spec = BOOK, phase, meta }: GivenAt): KubeObject => ({
  apiVersion: 'cnat.programming-kubernetes.info/v1alpha1',
  kind: 'At',
  metadata: { name, namespace: 'default', uid, ...meta },
  spec,
  ...(phase !== undefined && { status: { phase } }),
})

export interface GivenPod {
  phase?: string
  ownerUid?: string | undefined
  deleted?: boolean
}

export const podObject = ({ phase = 'Pending', ownerUid = 'this-one', deleted = false }: GivenPod): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: {
    name: 'example-at-pod',
    namespace: 'default',
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
  status: { phase },
})

export function inputOf(object: KubeObject | null, pods: KubeObject[], now: string): RunInput {
  return { object, owned: { 'Pod.v1': pods }, related: {}, attempt: 0, now, finalizing: false }
}

export const runAt = (input: RunInput) => invoke(input, { signal: new AbortController().signal, log: silent })

/** What the function decides on these objects at this time. */
export const decide = (given: GivenAt, pods: GivenPod[] = [], now: string = DUE) =>
  runAt(inputOf(atObject(given), pods.map(podObject), now))

export const THE_POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'example-at-pod', labels: { app: 'example-at' } },
  spec: {
    containers: [{ name: 'busybox', image: 'busybox', command: ['echo', 'YAY'] }],
    restartPolicy: 'OnFailure',
  },
}
