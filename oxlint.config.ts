import { defineConfig, type OxlintOverride } from 'oxlint'

/** Who may import whom (docs/decisions/0002-rooms.md). A room's door is its index.ts, named #room. */
const rooms: Record<string, string[]> = {
  contracts: [],
  jetstream: [],
  kube: ['contracts'],
  events: ['contracts', 'jetstream'],
  queue: ['jetstream'],
  reconcile: ['contracts', 'queue/terms'],
  bridge: ['contracts', 'kube', 'events', 'queue'],
  dispatch: ['contracts', 'kube', 'events', 'queue', 'reconcile'],
  'functions/sdk': ['contracts', 'cloudevents'],
  'functions/testing': ['contracts', 'queue/terms', 'reconcile', 'sdk'],
  'functions/at': ['sdk'],
  'functions/memcached': ['sdk'],
  'functions/visitors': ['sdk'],
  crds: ['contracts', 'sdk', 'functions'],
  local: ['kube', 'contracts'],
}

/** `#at` style names of every door; functions are reached as #sdk and #functions/NAME. */
const doors = [
  'contracts',
  'jetstream',
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
  'functions',
  'functions/*',
  'crds',
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
              message: `${room}/ may import only: ${allowed.map((a) => `#${a}`).join(', ') || 'nothing'} (docs/decisions/0002-rooms.md)`,
            },
            {
              regex:
                '^(\\.\\./)+(contracts|jetstream|kube|events|queue|reconcile|bridge|dispatch|functions|sdk|at|local|cli|test)/',
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
  ignorePatterns: ['node_modules', 'coverage'],
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
    ...Object.entries(rooms).map(([room, allowed]) => roomRule(room, allowed)),
    { files: ['test/**/*.ts'], rules: { 'typescript/no-non-null-assertion': 'off' } },
  ],
})
