/** `npm run soak [NAME] [-- ARGUMENTS]`: the failure test of that name; without a name, the queue's. */
import { runProgram } from '../support/programs.ts'

const SERVING = 'FAIRLEAD_KNATIVE'

process.exitCode = await runProgram(
  {
    usage: 'npm run soak',
    programs: {
      queue: { does: 'the queue under random faults', command: ['node', 'test/soak/queue.ts'] },
      chaos: {
        does: '1,000 Ats while processes, nats-server and kube-apiserver are killed',
        command: ['vitest', 'run', '--no-file-parallelism', 'test/e2e/chaos'],
        env: { FAIRLEAD_CHAOS_ATS: '1000' },
      },
      explorations: {
        does: 'all models of the queue, and the function of etcd disturbed at more points of its scenarios',
        command: ['vitest', 'run', '--testTimeout', '3600000', 'test/queue/model', 'test/functions/etcd'],
        env: { FAIRLEAD_EXPLORE: '20' },
      },
      knative: {
        does: `a function on the Knative Serving whose checkout ${SERVING} names`,
        command: ['vitest', 'run', 'test/e2e/knative'],
        lacks: () =>
          process.env[SERVING] ? undefined : `${SERVING} is not set: set it to a checkout of knative/serving.`,
      },
      keda: {
        does: 'dispatchers and a function scaled by the real KEDA, which is built first, for some minutes',
        command: ['vitest', 'run', 'test/e2e/keda'],
        env: { FAIRLEAD_KEDA: 'yes' },
      },
      reconcilers: {
        does: '2,000 Reconcilers made from their schema',
        command: ['vitest', 'run', '--testTimeout', '3600000', 'test/bridge/admitted.test.ts'],
        env: { FAIRLEAD_FUZZ_RECONCILERS: '2000' },
      },
      etcd: {
        does: 'an EtcdCluster on a real node under random faults, and all tests of etcd',
        command: ['node', 'test/soak/etcd.ts'],
      },
      size: {
        does: 'a million objects, 1,000 Reconcilers and 1,000 changes a second, on one replica of NATS or on three',
        command: ['node', 'test/soak/size.ts'],
      },
      fleet: {
        does: 'thirty operators for an hour, while a process or nats-server is killed each minute',
        command: ['node', 'test/soak/fleet.ts'],
      },
      webhooks: {
        does: 'a new version of 10,000 objects, step by step, while webhooks, certificates and the API server change',
        command: ['node', 'test/soak/webhooks.ts'],
      },
      adapters: {
        does: 'objects change hands between Metacontroller or helm-operator and Fairlead, and back, under load',
        command: ['node', 'test/soak/adapters.ts'],
      },
      bridge: { does: '1,000 changes a second', command: ['node', 'test/bench/bridge-steady.ts'] },
    },
    byDefault: ['queue'],
  },
  process.argv.slice(2),
)
