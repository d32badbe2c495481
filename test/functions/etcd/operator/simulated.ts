import type { KubeObject } from '#contracts'
import { EtcdCluster } from '#functions/etcd'
import { PersistentVolumeClaim, Pod } from '#sdk'
import type { ExternalModel, Simulation } from '#testing'
import { MemberPod, type PodObject } from '../../../../functions/etcd/operator/parts.ts'
import type { EtcdEffect } from '../../../../functions/etcd/operator/seen.ts'
import { EtcdModels } from './clusters.ts'
import { imageOf, sourcesOf, startOf } from './kubelet.ts'
import { type EtcdState, newEtcd } from './model.ts'

export type Clusters = { all: EtcdState[] }
export type EtcdSimulation = Simulation<typeof EtcdCluster, Clusters>

/** The model of etcd as the external system of the function. No time passes in it. */
export const etcdModel = (): ExternalModel<typeof EtcdCluster, Clusters> => ({
  state: { all: [newEtcd({ isInstant: true })] },
  read({ all }, { object, owned }) {
    return new EtcdModels(all).seen(object, owned(MemberPod))
  },
  perform({ all }, effect) {
    const asked = effect as EtcdEffect
    new EtcdModels(all).of(asked.via).perform(asked)
  },
})

/** Kubelets of the pods of a cluster: they start and end what has to run, at once. */
export function kubelets(world: EtcdSimulation, name = 'ex'): void {
  const etcds = new EtcdModels(world.external.all)
  const isOurs = ({ metadata }: PodObject): boolean => metadata.labels?.['etcd_cluster'] === name
  const pods = world.list(MemberPod).filter(isOurs)
  const disks = world.list(PersistentVolumeClaim).map(({ metadata }) => metadata.name)
  const names = etcds.all.flatMap(({ processes }) => [...processes.keys()])
  for (const name of names.filter((one) => pods.every(({ metadata }) => metadata.name !== one))) {
    etcds.stop(name)
    if (!disks.includes(name)) etcds.loseData(name)
  }
  for (const pod of pods) play(world, etcds, pod)
}

function play(world: EtcdSimulation, etcds: EtcdModels, pod: PodObject): void {
  const { name } = pod.metadata
  const its = etcds.of(name).processes.get(name)
  const isUp = its?.isUp === true || etcds.start(startOf(pod, its !== undefined), sourcesOf(pod))
  const etcd = etcds.of(name)
  const isReady = isUp && etcd.hasQuorum && etcd.voters.some((one) => one.name === name)
  const before = pod.status?.conditions?.find(({ type }) => type === 'Ready')
  const status = isReady ? 'True' : 'False'
  const lastTransitionTime = before?.status === status ? before.lastTransitionTime : world.now.toISOString()
  const etcdStatus = { name: 'etcd', image: imageOf(pod), imageID: '', ready: isUp, restartCount: 0 }
  world.patch(
    Pod,
    {
      status: {
        phase: 'Running',
        podIP: name,
        conditions: [{ type: 'Ready', status, lastTransitionTime }],
        containerStatuses: [etcdStatus],
      },
    },
    name,
  )
}

export const cluster = (name: string, spec: Parameters<typeof EtcdCluster.of>[0]['spec']): KubeObject =>
  EtcdCluster.of({ metadata: { name, namespace: 'default' }, spec })
