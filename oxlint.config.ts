import { defineConfig, type OxlintOverride } from 'oxlint'

/**
 * Who may import whom (docs/architecture.md): a room imports rooms that stand above it in this list. A room's door is its
 * index.ts, named #room. A room that is not in the list, such as cli/, may import all.
 */
export const rooms: Record<string, string[]> = {
  primitives: [],
  contracts: [],
  spec: ['contracts'],
  jetstream: ['primitives'],
  etcd: [],
  stores: ['primitives'],
  'etcd-agent': ['etcd', 'stores'],
  kube: ['contracts', 'primitives'],
  events: ['contracts', 'jetstream', 'primitives'],
  queue: ['contracts/log', 'jetstream', 'primitives'],
  reconcile: ['contracts', 'primitives/bounded-map', 'queue/terms', 'spec'],
  bridge: ['contracts', 'events', 'kube', 'primitives', 'queue', 'spec'],
  dispatch: ['contracts', 'events', 'kube', 'primitives', 'queue', 'reconcile', 'spec'],
  sdk: ['cloudevents', 'contracts', 'spec'],
  testing: ['contracts', 'queue/terms', 'reconcile', 'sdk', 'spec'],
  pki: [],
  'functions/at': ['sdk'],
  'functions/etcd-backup': ['sdk'],
  'functions/etcd-restore': ['functions/etcd-backup', 'sdk'],
  'functions/etcd': ['etcd', 'functions/etcd-restore', 'pki', 'primitives/bounded-map', 'sdk'],
  'functions/memcached': ['sdk'],
  'functions/visitors': ['sdk'],
  functions: [
    'functions/at',
    'functions/etcd',
    'functions/etcd-backup',
    'functions/etcd-restore',
    'functions/memcached',
    'functions/visitors',
    'sdk',
  ],
  'host/exit': [],
  'host/version': [],
  'host/config': ['host/exit'],
  'host/logging': ['host/config', 'host/exit'],
  'host/metrics': ['bridge', 'contracts', 'dispatch', 'events', 'host/exit', 'kube', 'queue'],
  'host/tracing': ['bridge', 'contracts', 'dispatch', 'events', 'host/exit'],
  'host/functions': ['dispatch', 'functions', 'host/exit', 'sdk'],
  'host/isolation': ['contracts', 'host/exit', 'host/functions', 'sdk'],
  'host/kube': ['host/config', 'host/version', 'kube'],
  'host/nats': ['events', 'host/config', 'host/exit', 'host/metrics', 'jetstream', 'queue'],
  'host/connections': [
    'events',
    'host/config',
    'host/exit',
    'host/kube',
    'host/metrics',
    'host/nats',
    'jetstream',
    'kube',
    'primitives',
    'queue',
  ],
  'host/history': [
    'contracts',
    'dispatch',
    'events',
    'host/config',
    'host/connections',
    'host/nats',
    'primitives',
    'reconcile',
  ],
  'host/runtime': [
    'bridge',
    'contracts',
    'dispatch',
    'host/config',
    'host/connections',
    'host/history',
    'host/tracing',
    'jetstream',
    'kube',
    'primitives',
    'sdk',
  ],
  install: ['contracts', 'functions', 'host/exit', 'host/version', 'kube', 'pki', 'sdk', 'spec'],
  image: ['host/exit', 'host/version', 'primitives'],
  local: ['contracts', 'image', 'kube', 'pki', 'primitives'],
  release: ['image'],
  scaffold: [],
  // Written as authors write: from 'fairlead' and 'fairlead/testing', which are no names of rooms.
  'examples/workspace': [],
  'testing/cluster': [
    'contracts',
    'dispatch',
    'host/config',
    'host/connections',
    'host/kube',
    'host/logging',
    'host/runtime',
    'install',
    'kube',
    'local',
    'sdk',
    'spec',
  ],
}

/** Names of every door; functions are reached as #functions/NAME. */
const doors = [
  'primitives',
  'primitives/*',
  'contracts',
  'contracts/*',
  'spec',
  'jetstream',
  'etcd',
  'stores',
  'etcd-agent',
  'kube',
  'events',
  'cloudevents',
  'queue',
  'queue/*',
  'reconcile',
  'bridge',
  'dispatch',
  'sdk',
  'sdk/*',
  'testing',
  'testing/*',
  'functions',
  'functions/*',
  'host/*',
  'image',
  'install',
  'pki',
  'scaffold',
  'local',
  'cli',
]

function roomRule(room: string, allowed: string[]): OxlintOverride {
  const closed = doors.filter((door) => !allowed.includes(door)).map((door) => `#${door}`)
  // A closed door closes what is behind it too, but for what is named.
  const open = allowed.filter((door) => door.includes('/')).map((door) => `!#${door}`)
  return {
    files: [`${room}/**/*.ts`],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: [...closed, ...open],
              message: `${room}/ may import only: ${allowed.map((a) => `#${a}`).join(', ') || 'nothing'} (docs/architecture.md)`,
            },
            {
              regex:
                '^(\\.\\./)+(primitives|contracts|spec|jetstream|etcd|stores|etcd-agent|kube|events|queue|reconcile|bridge|dispatch|functions|sdk|testing|host|image|install|pki|at|local|cli|test)/',
              message: 'Another room is reached through its door (#room), not by path.',
            },
          ],
        },
      ],
    },
  }
}

export default defineConfig({
  plugins: ['typescript', 'unicorn', 'oxc', 'import', 'vitest', 'promise', 'node'],
  options: { typeAware: true },
  categories: { correctness: 'error', suspicious: 'error', perf: 'off' },
  ignorePatterns: ['node_modules', 'coverage', 'build'],
  rules: {
    'typescript/no-floating-promises': 'error',
    'typescript/no-misused-promises': 'error',
    'typescript/switch-exhaustiveness-check': 'error',
    'typescript/no-explicit-any': 'error',
    'typescript/no-non-null-assertion': 'error',
    'typescript/consistent-type-imports': 'error',
    'typescript/only-throw-error': 'error',
    'typescript/await-thenable': 'error',
    'typescript/restrict-template-expressions': 'off',
    'typescript/no-unsafe-type-assertion': 'off',
    'typescript/no-unnecessary-type-arguments': 'off',
    'typescript/consistent-return': 'off',
    'unicorn/consistent-function-scoping': 'off',
    'unicorn/no-array-sort': 'off',
    'unicorn/no-array-reverse': 'off',
    'import/no-cycle': 'error',
    'import/no-unassigned-import': 'off',
    'no-await-in-loop': 'off',
    'no-underscore-dangle': 'off',
    'no-shadow': 'off',
    'promise/always-return': 'off',
    // Windows have origins, worker threads have none.
    'unicorn/require-post-message-target-origin': 'off',
    'promise/catch-or-return': 'off',
    'vitest/expect-expect': 'off',
    'vitest/require-mock-type-parameters': 'off',
  },
  overrides: [
    // Of several rules for a file the last one counts: a room inside another one comes after it.
    ...Object.entries(rooms)
      .toSorted(([a], [b]) => a.split('/').length - b.split('/').length)
      .map(([room, allowed]) => roomRule(room, allowed)),
    // Tests of users, by node:test, whose calls of test() are not awaited.
    { files: ['scaffold/templates/**/*.test.ts'], rules: { 'typescript/no-floating-promises': 'off' } },
    { files: ['test/**/*.ts'], rules: { 'typescript/no-non-null-assertion': 'off' } },
  ],
})
