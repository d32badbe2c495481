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
    expect(edited).toEqual({ status: { phase: 'PENDING' }, requeueAt: '2031-01-01T00:00:00.000Z' })
  })
})

describe('the command of an At', () => {
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
    expect((await podOf('a'.repeat(249)))?.name).toBe(`${'a'.repeat(249)}-pod`)
  })

  it.each([
    longest,
    `${'a'.repeat(51)}.${'b'.repeat(200)}`,
    `${'a'.repeat(50)}--${'b'.repeat(200)}`,
    `${'a.'.repeat(126)}a`,
  ])('has a name and a label that the API server takes, for %s', async (name) => {
    const { name: podName = '', labels } = (await podOf(name)) ?? {}
    expect(podName.length).toBeLessThanOrEqual(253)
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

describe('an At that is gone or going', () => {
  it('is left alone: its pod goes by garbage collection', async () => {
    expect(await decide({ meta: { deletionTimestamp: DUE } })).toEqual({})
  })
})
