/** `npm run bench [NAME] [-- ARGUMENTS]`: the benchmark of that name; without a name, those of the README. */
import { runProgram } from '../support/programs.ts'

process.exitCode = await runProgram(
  {
    usage: 'npm run bench',
    programs: {
      queue: { does: 'the queue beside bare JetStream operations', command: ['node', 'test/bench/queue.ts'] },
      disk: { does: 'what syncing to disk costs the queue', command: ['node', 'test/bench/queue-disk.ts'] },
      whole: { does: 'an edit, a burst and memory, through all parts', command: ['node', 'test/bench/whole.ts'] },
      calls: {
        does: 'calls, API requests and messages of an At and of an edit',
        command: ['node', 'test/bench/calls.ts'],
      },
      burst: {
        does: 'CPU and messages of many Ats that are due at once, beside another checkout',
        command: ['node', 'test/bench/burst.ts'],
      },
      console: { does: 'runs beside a console with 20 tabs', command: ['node', 'test/bench/console.ts'] },
      strategies: { does: 'the ways to write an object', command: ['node', 'test/bench/strategies.ts'] },
      bridge: { does: 'the bridge beside informers', command: ['node', 'test/bench/bridge.ts'] },
      secrets: { does: 'a bridge with many large Secrets', command: ['node', 'test/bench/bridge-secrets.ts'] },
      state: { does: 'runs that read much at once', command: ['node', 'test/bench/large-state.ts'] },
      related: { does: 'an edit beside pods that are not related', command: ['node', 'test/bench/related.ts'] },
      resyncs: { does: 'a resync of 10 objects beside 100,000 others', command: ['node', 'test/bench/resyncs.ts'] },
      'fleet-diff': { does: 'memory of a diff over 10,000 objects', command: ['node', 'test/bench/fleet-diff.ts'] },
      reconcilers: {
        does: 'a run of the queue among many Reconcilers',
        command: ['node', 'test/bench/queue-reconcilers.ts'],
      },
      routing: { does: 'routing of a change among many Reconcilers', command: ['node', 'test/bench/routing.ts'] },
      beside: {
        does: 'an At and an edit beside controller-runtime and Kopf',
        command: ['node', 'test/bench/beside/beside.ts'],
      },
      fleet: {
        does: 'thirty operators beside the same functions on Fairlead',
        command: ['node', 'test/bench/fleet/fleet.ts'],
      },
      webhooks: {
        does: 'conversions and validate beside a webhook on controller-runtime',
        command: ['node', 'test/bench/webhooks/webhooks.ts'],
      },
      clusters: { does: 'many clusters while nothing happens', command: ['node', 'test/bench/clusters.ts'] },
      'clusters-away': {
        does: 'edits in one cluster while another one is away with 2,000 due keys',
        command: ['node', 'test/bench/clusters-away.ts'],
      },
      machines: { does: 'dispatchers with a part of a core each', command: ['node', 'test/bench/machines.ts'] },
      'etcd-backup': { does: 'snapshots of etcd, to S3 and back', command: ['node', 'test/bench/etcd-backup.ts'] },
      peers: { does: 'the queue beside other queues', command: ['node', 'test/bench/peers/peers.ts'] },
    },
    byDefault: ['queue', 'disk', 'whole', 'strategies', 'bridge'],
  },
  process.argv.slice(2),
)
