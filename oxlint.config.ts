import { defineConfig, type OxlintOverride } from 'oxlint'
import packageJson from './package.json' with { type: 'json' }

/**
 * Who may import whom (docs/architecture.md): a room imports rooms that stand above it in this list. A room's door is its
 * index.ts, by a name of package.json. A room that is not in the list, such as cli/, may import all. Functions import
 * `fairlead` by its public name, as authors do, and each other by path.
 */
export const rooms: Record<string, string[]> = {
  'core/primitives': [],
  'core/contracts': [],
  'core/spec': ['contracts'],
  'streams/nats': ['primitives'],
  'functions/etcd/client': [],
  'functions/etcd/stores': [],
  'functions/etcd/agent': ['functions/etcd/client', 'functions/etcd/stores'],
  kube: ['contracts', 'primitives'],
  'streams/events': ['contracts', 'nats', 'primitives'],
  'streams/queue': ['contracts/log', 'nats', 'primitives'],
  reconcile: ['contracts', 'primitives/bounded-map', 'queue/terms', 'spec'],
  bridge: ['contracts', 'events', 'kube', 'primitives', 'queue', 'spec'],
  dispatch: ['contracts', 'events', 'kube', 'primitives', 'queue', 'reconcile', 'spec'],
  sdk: ['cloudevents', 'contracts', 'spec'],
  'sdk/testing': ['contracts', 'queue/terms', 'reconcile', 'sdk', 'spec'],
  'kube/pki': [],
  'functions/at': ['fairlead'],
  'functions/etcd/backup': ['fairlead'],
  'functions/etcd/restore': ['fairlead', 'functions/etcd/backup'],
  'functions/etcd/operator': ['fairlead', 'functions/etcd/client', 'functions/etcd/restore', 'pki'],
  'functions/memcached': ['fairlead'],
  'functions/metacontroller': ['fairlead'],
  'functions/visitors': ['fairlead'],
  functions: [
    'fairlead',
    'functions/at',
    'functions/etcd/backup',
    'functions/etcd/operator',
    'functions/etcd/restore',
    'functions/memcached',
    'functions/metacontroller',
    'functions/visitors',
  ],
  'cli/process': [
    'bridge',
    'contracts',
    'dispatch',
    'events',
    'functions',
    'kube',
    'nats',
    'primitives',
    'queue',
    'reconcile',
    'sdk',
  ],
  'packages/scaffold': [],
  'cli/install': [
    'contracts',
    'functions',
    'process/exit',
    'process/version',
    'process/webhooks/probe',
    'kube',
    'pki',
    'sdk',
    'spec',
  ],
  'cli/agent': ['bridge', 'contracts', 'install/rbac', 'kube', 'nats', 'primitives', 'process/agent-wire', 'spec'],
  'cli/inspect': [
    'contracts',
    'events',
    'process/config',
    'process/exit',
    'process/history',
    'process/logging',
    'process/nats',
    'install',
    'nats',
    'kube',
    'primitives',
    'queue',
    'reconcile',
    'spec',
  ],
  'packages/console/access': ['contracts', 'dispatch', 'kube', 'primitives', 'spec'],
  'packages/console': [
    'console/access',
    'contracts',
    'events',
    'process/config',
    'process/exit',
    'process/kube',
    'process/logging',
    'inspect',
    'inspect/states',
    'kube',
    'primitives',
    'queue',
    'reconcile',
    'spec',
  ],
  'packages/helm': ['primitives', 'sdk'],
  'packages/image': ['process/exit', 'process/version', 'primitives'],
  'packages/lab': ['contracts', 'image', 'kube', 'pki', 'primitives'],
  'packages/release': ['image', 'scaffold'],
  // Written as authors write: from 'fairlead' and 'fairlead/testing', which are no names of rooms.
  'docs/examples': [],
  'sdk/testing/cluster': [
    'contracts',
    'dispatch',
    'process/config',
    'process/connections',
    'process/kube',
    'process/logging',
    'process/runtime',
    'install',
    'kube',
    'lab',
    'sdk',
    'spec',
  ],
}

/** Names of every door, and of what is behind it. */
const doors = [
  ...new Set(Object.keys(packageJson.imports).map((name) => name.slice(1))),
  'primitives/*',
  'contracts/*',
  'queue/*',
  'sdk/*',
  'testing/*',
  'functions/*',
  'inspect/*',
  'console/*',
]

function roomRule(room: string, allowed: string[]): OxlintOverride {
  const isFunction = room.startsWith('functions')
  const named = allowed.filter((door) => !isFunction || !door.startsWith('functions/'))
  const closed = doors.filter((door) => !named.includes(door)).map((door) => `#${door}`)
  // A closed door closes what is behind it too, but for what is named.
  const open = named.filter((door) => door.includes('/')).map((door) => `!#${door}`)
  const folder = room.slice(0, room.lastIndexOf('/') + 1)
  const siblings = Object.keys(rooms)
    .filter((other) => folder !== '' && other.startsWith(folder) && other !== room && !allowed.includes(other))
    .map((other) => other.slice(folder.length))
  return {
    files: [`${room}/**/*.ts`],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: [...closed, ...open, 'fairlead/internal/*'],
              message: `${room}/ may import only: ${allowed.map((door) => (named.includes(door) && door !== 'fairlead' ? `#${door}` : door)).join(', ') || 'nothing'} (docs/architecture.md)`,
            },
            ...(siblings.length > 0
              ? [{ regex: `^\\.\\./(${siblings.join('|')})/`, message: `${room}/ may not import this room by path.` }]
              : []),
            {
              regex: '^(\\.\\./)+(core|kube|streams|reconcile|bridge|dispatch|functions|sdk|cli|packages|test)/',
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
    { files: ['packages/scaffold/templates/**/*.test.ts'], rules: { 'typescript/no-floating-promises': 'off' } },
    { files: ['test/**/*.ts'], rules: { 'typescript/no-non-null-assertion': 'off' } },
  ],
})
