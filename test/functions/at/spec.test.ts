import { describe, expect, it } from 'vitest'
import { BOOK, DUE, decide } from './given.ts'

const NOW = '2000-01-01T00:00:00Z'
const due = async (schedule: unknown) => (await decide({ spec: { ...BOOK, schedule } }, [], NOW)).requeueAt
const command = async (text: unknown) => {
  const { apply } = await decide({ spec: { ...BOOK, command: text } })
  return (apply![0]!.spec as { containers: { command: string[] }[] }).containers[0]!.command
}
const podOf = async (name: string) => (await decide({ name })).apply?.[0]?.metadata

describe('the time of an At', () => {
  it.each([
    ['2019-04-12T10:12:00Z', DUE],
    ['2019-04-12T12:12:00+02:00', DUE],
    ['2019-04-12T00:42:00-09:30', DUE],
    ['2019-04-12T10:12:00-00:00', DUE],
    ['2019-04-12T10:12:00.5Z', '2019-04-12T10:12:00.500Z'],
    ['2019-04-12T10:12:00.057Z', '2019-04-12T10:12:00.057Z'],
    ['2019-04-12T10:12:00.000000001Z', '2019-04-12T10:12:00.001Z'],
    ['2020-02-29T00:00:00Z', '2020-02-29T00:00:00.000Z'],
    ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59.000Z'],
  ])('takes %s for %s', async (schedule, instant) => {
    expect(await due(schedule)).toBe(instant)
  })

  it.each([
    'tomorrow',
    '',
    ' 2019-04-12T10:12:00Z',
    '2019-04-12T10:12:00Z\n',
    '2019-04-12t10:12:00z',
    '2019-04-12T10:12:00',
    '2019-04-12 10:12:00Z',
    '2019-04-12T10:12Z',
    '2019-04-12T10:12:00+0200',
    '2019-04-12T10:12:00+24:00',
    '2019-02-29T10:12:00Z',
    '2019-04-31T10:12:00Z',
    '2019-13-01T10:12:00Z',
    '2019-04-12T24:00:00Z',
    '2019-04-12T23:59:60Z',
    '2019-04-12T10:12:00.Z',
    '2019-04-12T10:12:00.1234567890Z',
    '1555063920',
  ])('refuses %j, once and for all', async (schedule) => {
    await expect(due(schedule)).rejects.toMatchObject({
      name: 'TerminalError',
      reason: 'InvalidSchedule',
      message: `spec.schedule is ${JSON.stringify(schedule)}: expected an RFC 3339 time such as 2019-04-12T10:12:00Z`,
    })
  })

  it('says so when there is none', async () => {
    await expect(due(undefined)).rejects.toThrow('spec.schedule is missing')
    await expect(decide({ spec: {} })).rejects.toThrow('spec.command is missing')
    await expect(decide({ spec: null })).rejects.toThrow('spec.command is missing')
  })

  it('moves when it is edited while pending', async () => {
    const edited = await decide({ phase: 'PENDING', spec: { ...BOOK, schedule: '2031-01-01T00:00:00Z' } })
    const due = '2031-01-01T00:00:00.000Z'
    expect(edited).toEqual({ status: { phase: 'PENDING', scheduledTime: due }, requeueAt: due })
  })
})

describe('the time zone of an At', () => {
  const dueIn = async (timeZone: string, schedule: string) =>
    (await decide({ spec: { ...BOOK, schedule, timeZone } }, [], NOW)).requeueAt

  it.each([
    ['Europe/Berlin', '2026-07-01T12:00:00', '2026-07-01T10:00:00.000Z'],
    ['Europe/Berlin', '2026-12-01T12:00:00.5', '2026-12-01T11:00:00.500Z'],
    ['Asia/Kolkata', '2026-07-01T12:00:00', '2026-07-01T06:30:00.000Z'],
    ['Etc/UTC', '2026-07-01T12:00:00', '2026-07-01T12:00:00.000Z'],
    ['America/New_York', '2026-03-08T01:59:59', '2026-03-08T06:59:59.000Z'],
    ['America/New_York', '2026-03-08T03:00:00', '2026-03-08T07:00:00.000Z'],
  ])('reads a local time in %s: %s', async (timeZone, schedule, instant) => {
    expect(await dueIn(timeZone, schedule)).toBe(instant)
  })

  it.each([
    ['Europe/Berlin', '2026-03-29T02:30:00', '2026-03-29T01:30:00.000Z'],
    ['America/New_York', '2026-03-08T02:30:00', '2026-03-08T07:30:00.000Z'],
    ['Australia/Lord_Howe', '2026-10-04T02:15:00', '2026-10-03T15:45:00.000Z'],
    ['Pacific/Apia', '2011-12-30T12:00:00', '2011-12-30T22:00:00.000Z'],
  ])('takes the offset before for a time that clocks in %s skip: %s', async (timeZone, schedule, instant) => {
    expect(await dueIn(timeZone, schedule)).toBe(instant)
  })

  it.each([
    ['Europe/Berlin', '2026-10-25T02:30:00', '2026-10-25T00:30:00.000Z'],
    ['America/New_York', '2026-11-01T01:30:00', '2026-11-01T05:30:00.000Z'],
    ['Australia/Lord_Howe', '2026-04-05T01:45:00', '2026-04-04T14:45:00.000Z'],
  ])('takes the first of two times that clocks in %s show: %s', async (timeZone, schedule, instant) => {
    expect(await dueIn(timeZone, schedule)).toBe(instant)
  })

  it.each([
    ['Europe/Atlantis', '2026-07-01T12:00:00', 'spec.timeZone is "Europe/Atlantis": expected an IANA name'],
    ['+02:00', '2026-07-01T12:00:00', 'spec.timeZone is "+02:00": expected an IANA name'],
    ['', '2026-07-01T12:00:00', 'spec.timeZone is ""'],
    ['Europe/Berlin', '2026-07-01T12:00:00Z', 'without an offset, because spec.timeZone is Europe/Berlin'],
    ['Europe/Berlin', '2026-02-30T12:00:00', 'spec.schedule is "2026-02-30T12:00:00"'],
  ])('refuses %j with %s, once and for all', async (timeZone, schedule, message) => {
    await expect(dueIn(timeZone, schedule)).rejects.toMatchObject({
      reason: 'InvalidSchedule',
      message: expect.stringContaining(message),
    })
  })
})

describe('the command of an At', () => {
  const container = async (spec: object) => {
    const { apply } = await decide({ spec: { schedule: BOOK.schedule, ...spec } })
    return (apply![0]!.spec as { containers: Record<string, unknown>[] }).containers[0]
  }

  it('has arguments that are taken as they are', async () => {
    const { command, args } = (await container({ command: 'printf %s', args: ["it's  $HOME", ''] }))!
    expect([command, args]).toEqual([
      ['printf', '%s'],
      ["it's  $HOME", ''],
    ])
    expect(await container({ args: ['a b'] })).not.toHaveProperty('command')
  })

  it('is a shell’s where one is asked for, with the arguments as $1, $2, …', async () => {
    const { command, args } = (await container({ command: 'echo "$1" | wc -c', shell: true, args: ['a  b'] }))!
    expect([command, args]).toEqual([['/bin/sh', '-c', 'echo "$1" | wc -c', 'sh'], ['a  b']])
    await expect(container({ shell: true, args: ['a'] })).rejects.toThrow('spec.command is missing')
  })

  it('is split at single spaces, as in the original', async () => {
    expect(await command("echo  'a b'")).toEqual(['echo', '', "'a", "b'"])
    expect(await command('true')).toEqual(['true'])
  })

  it.each([undefined, '', ' echo'])('is refused if no container could start it: %j', async (text) => {
    await expect(command(text)).rejects.toMatchObject({ name: 'TerminalError', reason: 'InvalidCommand' })
  })

  it('is refused while there is time to correct it', async () => {
    await expect(decide({ spec: { ...BOOK, command: '' } }, [], NOW)).rejects.toMatchObject({
      reason: 'InvalidCommand',
    })
  })
})

describe('the pod of an At', () => {
  const dnsSubdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/
  const longest = 'a'.repeat(253)

  it('is called after it, with its name as label', async () => {
    expect(await podOf('my.at-1')).toEqual({ name: 'my.at-1-pod', labels: { app: 'my.at-1' } })
  })

  it('keeps names as long as they fit', async () => {
    expect((await podOf('a'.repeat(63)))?.labels).toEqual({ app: 'a'.repeat(63) })
    expect((await podOf('a'.repeat(150)))?.name).toBe(`${'a'.repeat(150)}-pod`)
  })

  it.each([
    longest,
    `${'a'.repeat(51)}.${'b'.repeat(200)}`,
    `${'a'.repeat(50)}--${'b'.repeat(200)}`,
    `${'a.'.repeat(126)}a`,
  ])('has a name and a label that the API server takes, for %s', async (name) => {
    const { name: podName = '', labels } = (await podOf(name)) ?? {}
    expect(podName.length).toBeLessThanOrEqual(154)
    expect(podName).toMatch(dnsSubdomain)
    expect(labels?.['app']).toMatch(/^[a-z0-9][-.a-z0-9]{0,61}[a-z0-9]$/)
  })

  it('tells apart names that differ only after the limit', async () => {
    const one = await podOf(`${longest.slice(1)}x`)
    const two = await podOf(`${longest.slice(1)}y`)
    expect(one?.name).not.toBe(two?.name)
    expect(one?.labels).not.toEqual(two?.labels)
  })
})

describe('the template of an At', () => {
  const podWith = async (template: object) => (await decide({ spec: { ...BOOK, template } })).apply?.[0]

  it('adds to the pod, and its first container to the one of the command', async () => {
    const env = [{ name: 'A', value: 'b' }]
    const sidecar = { name: 'proxy', image: 'proxy:1' }
    const pod = await podWith({
      metadata: { labels: { app: 'mine', team: 'x' }, annotations: { note: 'y' } },
      spec: {
        serviceAccountName: 'backup',
        containers: [{ name: 'main', image: 'tool:1', env, command: ['no'] }, sidecar],
      },
    })
    expect(pod).toMatchObject({
      metadata: { name: 'example-at-pod', labels: { app: 'example-at', team: 'x' }, annotations: { note: 'y' } },
      spec: {
        serviceAccountName: 'backup',
        restartPolicy: 'Never',
        containers: [{ name: 'main', image: 'tool:1', env, command: ['echo', 'YAY'] }, sidecar],
      },
    })
  })

  it.each(['Always', 'OnFailure'])('is refused if the pod would run again by itself: %s', async (restartPolicy) => {
    await expect(podWith({ spec: { restartPolicy } })).rejects.toMatchObject({ reason: 'InvalidTemplate' })
    expect(await podWith({ spec: { restartPolicy: 'Never' } })).toBeDefined()
  })
})

describe('an At that is gone or going', () => {
  it('is left alone: its pod goes by garbage collection', async () => {
    expect(await decide({ meta: { deletionTimestamp: DUE } })).toEqual({})
  })
})
