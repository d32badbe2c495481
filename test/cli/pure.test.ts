import { spawnSync } from 'node:child_process'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { filtersOf } from '#inspect'
import { ApiError } from '#kube'
import { duration, table } from '#process/exit'
import { RECONCILERS } from '#spec'
import { readConfig, variablesOf } from '../../cli/process/config.ts'
import { exitCodeOf, UsageError } from '../../cli/process/exit.ts'
import { errorFields } from '../../cli/process/logging.ts'
import { parseAddress } from '../../cli/process/metrics.ts'
import { completionScript, completionWords } from '../../cli/program/completion.ts'
import { createProgram } from '../../cli/program/program.ts'
import manifest from '../../package.json' with { type: 'json' }

const program = createProgram(
  () => {},
  () => {},
)

describe('a kind in `events`', () => {
  const ref = (group: string, resource: string) => ({ group, version: 'v1', resource })
  const [core, knative, deployments] = [
    ref('', 'services'),
    ref('serving.knative.dev', 'services'),
    ref('apps', 'deployments'),
  ]
  const found = (kind: string) => filtersOf({ kinds: [kind] }, [core, knative, deployments]).map((filter) => filter.ref)

  it.each([
    ['services', [core, knative]],
    ['Service', [core, knative]],
    ['services.serving.knative.dev', [knative]],
    ['svc', [core]],
    ['deploy', [deployments]],
  ])('is found by the name %s', (kind, refs) => {
    expect(found(kind)).toEqual(refs)
  })

  it('is an error that names what is watched, and no record of a bridge, where a short name is of another resource', () => {
    const record = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'finalized' }
    expect(() => filtersOf({ kinds: ['cm'] }, [core, RECONCILERS, record])).toThrow(
      /^no bridge watches cm; they watch services.v1, reconcilers.v1alpha1.fairlead.dev$/,
    )
  })
})

describe('configuration', () => {
  it('has defaults, and takes an empty variable for an unset one', () => {
    expect(readConfig({ NATS_URL: '', LOG_LEVEL: '' })).toMatchObject({
      NATS_URL: 'nats://127.0.0.1:4222',
      FAIRLEAD_REPLICAS: 1,
      LOG_LEVEL: 'info',
    })
  })

  it('takes kinds that travel as references as kubectl names them', () => {
    expect(readConfig({}).FAIRLEAD_REFERENCE_ONLY).toEqual([])
    expect(readConfig({ FAIRLEAD_REFERENCE_ONLY: 'configmaps,widgets.example.com' }).FAIRLEAD_REFERENCE_ONLY).toEqual([
      { group: '', resource: 'configmaps' },
      { group: 'example.com', resource: 'widgets' },
    ])
  })

  it('takes sizes in Ki, Mi, Gi or Ti', () => {
    expect(readConfig({}).FAIRLEAD_EVENTS_MAX_BYTES).toBeUndefined()
    expect(readConfig({ FAIRLEAD_EVENTS_MAX_BYTES: '7Gi' }).FAIRLEAD_EVENTS_MAX_BYTES).toBe(7 * 2 ** 30)
    expect(readConfig({ FAIRLEAD_EVENTS_MAX_BYTES: '64Mi' }).FAIRLEAD_EVENTS_MAX_BYTES).toBe(64 * 2 ** 20)
    expect(readConfig({ FAIRLEAD_STORAGE_MAX_BYTES: '9437184Ki' }).FAIRLEAD_STORAGE_MAX_BYTES).toBe(9 * 2 ** 30)
    expect(readConfig({ FAIRLEAD_STORAGE_MAX_BYTES: '2Ti' }).FAIRLEAD_STORAGE_MAX_BYTES).toBe(2 ** 41)
  })

  it.each(['nats://a:4222', 'a', 'tls://u:p@a:4222', 'nats://a:1,nats://b:2', '[::1]:4222'])(
    'connects to %s',
    (url) => {
      expect(readConfig({ NATS_URL: url }).NATS_URL).toBe(url)
    },
  )

  it.each([
    ['NATS_URL', 'http://a'],
    ['NATS_URL', 'nats://a b'],
    ['NATS_URL', 'nats://a,,b'],
    ['LOG_LEVEL', 'loud'],
    ['LOG_FORMAT', 'xml'],
    ['FAIRLEAD_REFERENCE_ONLY', 'Config Maps'],
    ['FAIRLEAD_REPLICAS', '2'],
    ['FAIRLEAD_EVENTS_MAX_BYTES', '7'],
    ['FAIRLEAD_EVENTS_MAX_BYTES', '0Gi'],
    ['FAIRLEAD_STORAGE_MAX_BYTES', '8192Ti'],
    ['FAIRLEAD_LEASE_SECONDS', 'soon'],
    ['FAIRLEAD_RUN_RATES', '{"shop":{"perSecond":20}}'],
    ['FAIRLEAD_RUN_RATES', '20'],
    ['FAIRLEAD_LEASE_SECONDS', '1'],
    ['FAIRLEAD_MAX_STATE_MIB', '0'],
    ['FAIRLEAD_MAX_STATE_MIB', '1.5'],
    ['FAIRLEAD_PREFIX', 'a.b'],
    ['FAIRLEAD_SHARD', 'A'],
  ])('names the variable %s and its wrong value %s', (variable, value) => {
    expect(() => readConfig({ [variable]: value })).toThrow(`${variable} is ${JSON.stringify(value)}`)
  })

  it('gives each shard streams of its own', () => {
    const prefixOf = (env: Record<string, string>) => readConfig(env).FAIRLEAD_PREFIX
    expect(prefixOf({ FAIRLEAD_SHARD: 'a' })).toBe('a')
    expect(prefixOf({ FAIRLEAD_SHARD: 'a', FAIRLEAD_PREFIX: 'east' })).toBe('east-a')
    expect(prefixOf({ FAIRLEAD_PREFIX: 'east' })).toBe('east')
  })

  it('does not show the password of an address that is none', () => {
    for (const url of ['nats://u:p_a/s_s@a:1', 'nats://u:p_a,s_s@a:1', 'http://u:p_as_s@a:1'])
      expect(() => readConfig({ NATS_URL: url })).toThrow('NATS_URL is "…@a:1", which')
  })

  it('puts an option before its variable, and blames the option for its value', () => {
    expect(readConfig({ NATS_URL: 'nats://a' }, { nats: 'nats://b' }).NATS_URL).toBe('nats://b')
    expect(() => readConfig({}, { prefix: 'a.b' })).toThrow('--prefix is "a.b"')
    expect(variablesOf({ kubeconfig: 'k' })).toEqual({ KUBECONFIG: 'k' })
  })
})

it('gives a failure the code of the outermost error that has one', () => {
  const named = (name: string, cause?: unknown) => Object.assign(new Error('x', { cause }), { name })
  expect(exitCodeOf(new UsageError('x'))).toBe(2)
  expect(exitCodeOf(new Error('x', { cause: named('ApiConnectionError') }))).toBe(3)
  expect(exitCodeOf(named('NatsUnreachableError', named('ApiError')))).toBe(4)
  expect([exitCodeOf(new Error('x')), exitCodeOf('x')]).toEqual([1, 1])
})

it('listens on host:port, on :port, and on IPv6 in brackets', () => {
  expect(parseAddress('127.0.0.1:80')).toEqual({ host: '127.0.0.1', port: 80 })
  expect(parseAddress(':80')).toEqual({ host: undefined, port: 80 })
  expect(parseAddress('[::1]:80')).toEqual({ host: '::1', port: 80 })
  for (const wrong of ['80', 'a', 'a:99999', 'a:']) expect(() => parseAddress(wrong)).toThrow('host:port')
})

it('pads columns but the last', () => {
  expect(table(['A', 'B'], [['long', 'x']])).toBe('A     B\nlong  x')
})

it.each([
  [-5, '0ms'],
  [850, '850ms'],
  [12_900, '12s'],
  [190_000, '3m10s'],
  [3_600_000, '60m'],
  [18_120_000, '5h2m'],
  [3_542_400_000, '41d'],
])('writes %i ms as %s', (ms, text) => expect(duration(ms)).toBe(text))

describe('an error in a log', () => {
  it('has its stack, but for an answer of the API server', () => {
    expect(errorFields(new TypeError('oops'))).toMatchObject({
      message: 'oops',
      stack: expect.stringContaining('pure.test'),
    })
    const forbidden = new ApiError('POST /x', { apiVersion: 'v1', kind: 'Status', code: 403, message: 'no' })
    expect(errorFields(forbidden)).toEqual({ type: 'ApiError', message: 'POST /x: no (403)' })
    expect(errorFields({ type: 'RefusedError', message: 'no' })).toEqual({ type: 'RefusedError', message: 'no' })
  })
})

describe('the help of every command', () => {
  const all = (one: Command): Command[] => [one, ...one.commands.flatMap(all)]
  const pathOf = (one: Command): string => (one.parent ? `${pathOf(one.parent)} ${one.name()}` : one.name())
  const commands = all(program).map((one) => [pathOf(one), one] as const)

  it.each(commands)('%s: descriptions begin with a noun or a verb', (_, one) => {
    const texts = [
      one.description(),
      ...[...one.options, ...one.registeredArguments].map(({ description }) => description),
    ]
    const NEITHER =
      /^(?:a|an|the|of|for|to|in|on|at|by|with|from|under|where|which|whose|what|who|why|how|that|as|also|and|or|only|then|its|their|this|these|e\.g)\b/i
    expect(texts.filter((text) => NEITHER.test(text) || !/^[A-Z]/.test(text))).toEqual([])
  })

  it.each(commands)('%s: fits 80 columns', (_, one) => {
    let text = ''
    one.configureOutput({ writeOut: (part) => (text += part), getOutHelpWidth: () => 80 }).outputHelp()
    expect(text).toMatch(/^Usage: fairlead/)
    expect(text.split('\n').filter((line) => line.length > 80)).toEqual([])
  })

  it('begins with the sentence of the package, and with what to do first', () => {
    expect(program.description()).toMatch(new RegExp(`^${manifest.description}\\.\n\nStart here:`))
  })
})

describe('completion', () => {
  it('knows every command and long option by its place', () => {
    const words = completionWords(program).map(({ path, word }) => `${path}>${word}`)
    expect(words).toEqual(expect.arrayContaining(['>queue', '>--nats', 'queue>ls', 'queue ls>--limit', 'local>down']))
  })

  it.each([
    [['fairlead', 'qu'], 'queue'],
    [['fairlead', 'local', 'd'], 'down'],
    [['fairlead', '--nats', 'nats', ':', '//a', 'qu'], 'queue'],
    [['fairlead', 'queue', 'ls', '--lim'], '--limit'],
  ])('completes %j in bash', (typed, completed) => {
    const words = typed.map((word) => `'${word}'`).join(' ')
    const use = `COMP_WORDS=(${words}); COMP_CWORD=${typed.length - 1}; _fairlead; echo "\${COMPREPLY[@]}"`
    const { stdout, stderr } = spawnSync('bash', ['-c', `${completionScript(program, 'bash')}\n${use}`])
    expect(stderr.toString()).toBe('')
    expect(stdout.toString().trim()).toBe(completed)
  })
})
