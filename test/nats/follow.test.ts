import { cp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { follow } from '#nats'
import { isSetBack } from '../../streams/nats/follow.ts'
import { useJetStream } from '../support/jetstream.ts'
import { until } from '../support/wait.ts'

describe('following a stream', () => {
  const { nats, js } = useJetStream()
  let next = 0

  async function stream(): Promise<string> {
    const name = `S${next++}`
    await js().admin.streams.add({ name, subjects: [`${name}.>`], max_msgs_per_subject: 1 })
    return name
  }

  it('gives the last message of each subject, then every later one, and ends with the signal', async () => {
    const name = await stream()
    for (const [subject, text] of [
      ['a', '1'],
      ['b', '2'],
      ['a', '3'],
      ['other', '4'],
    ] as const)
      await js().publish(`${name}.${subject}`, text, {})
    const end = new AbortController()
    const seen: string[] = []
    for await (const { subject, sequence, data } of follow(js(), name, [`${name}.a`, `${name}.b`], end.signal)) {
      seen.push(`${subject.slice(name.length + 1)} ${Buffer.from(data).toString()} ${sequence}`)
      if (seen.length === 2) await js().publish(`${name}.a`, '5', {})
      if (seen.length === 3) end.abort()
    }
    expect(seen).toEqual(['b 2 2', 'a 3 3', 'a 5 5'])
  })

  it('gives headers without data if that is asked for', async () => {
    const name = await stream()
    await js().publish(`${name}.a`, 'text', { 'x-header': 'x' })
    for await (const message of follow(js(), name, [`${name}.>`], new AbortController().signal, {
      headersOnly: true,
    })) {
      expect(message).toMatchObject({ subject: `${name}.a`, headers: { 'x-header': 'x' }, data: { length: 0 } })
      break
    }
  })

  it('loses nothing when the reader is slower than the stream', async () => {
    const name = await stream()
    const text = 'x'.repeat(20_000)
    const publishing = Promise.all(Array.from({ length: 2000 }, (_, at) => js().publish(`${name}.${at}`, text, {})))
    const end = new AbortController()
    const seen = new Set<string>()
    for await (const { subject } of follow(js(), name, [`${name}.>`], end.signal)) {
      seen.add(subject)
      if (seen.size % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 10))
      if (seen.size === 2000) end.abort()
    }
    await publishing
    expect(seen.size).toBe(2000)
  })

  it('begins anew when the server has lost what it gave: what took its place is not passed over', async () => {
    const name = await stream()
    const publish = (subject: string) => js().publish(`${name}.${subject}`, '', {})
    const { processes, names } = nats()
    const store = join(processes.dir, 'nats', names[0] ?? '', 'store')
    const older = `${store}-older`
    const startWith = async (act: () => Promise<void>) => {
      await processes.kill(names[0] ?? '')
      await act()
      await nats().restart()
      await until(() => js().lastSequence(name))
    }
    await publish('a')
    await startWith(() => cp(store, older, { recursive: true }))
    await publish('lost')
    await publish('lost')
    const seen: string[] = []
    for await (const { subject } of follow(js(), name, [`${name}.>`], new AbortController().signal)) {
      seen.push(subject.slice(name.length + 1))
      if (seen.at(-1) === 'lost')
        await startWith(async () => {
          await rm(store, { recursive: true })
          await rename(older, store)
        }).then(() => publish('b'))
      if (seen.at(-1) === 'b') break
    }
    expect(seen).toEqual(['a', 'lost', 'a', 'b'])
  })

  it('goes on where it was when the server was killed', async () => {
    const name = await stream()
    const publish = async (count: number) => {
      for (let at = 0; at < count; at++) await js().publish(`${name}.a`, '', {})
    }
    await publish(1)
    const sequences: number[] = []
    for await (const { sequence } of follow(js(), name, [`${name}.>`], new AbortController().signal)) {
      sequences.push(sequence)
      if (sequence === 3) {
        nats().signal('SIGKILL')
        await nats().restart()
        while (
          (await js()
            .lastSequence(name)
            .catch(() => 0)) === 0
        )
          await new Promise((resolve) => setTimeout(resolve, 20))
      }
      if (sequence === 5) break
      await publish(1)
    }
    expect(sequences).toEqual([1, 2, 3, 4, 5])
  })

  it.each([
    ['is behind what was delivered, then and later', [4, 4], true],
    ['stores after its replica has delivered', [4, 5], false],
    ['has stored it', [5], false],
  ])('begins again only if the leader has lost a message: it %s', async (_leader, answers, isLost) => {
    const left = [...answers]
    const end = new AbortController()
    end.abort()
    expect(await isSetBack(async () => left.shift() ?? 0, 5, end.signal)).toBe(isLost)
    expect(left).toEqual([])
  })

  it('leaves no consumer behind', async () => {
    const name = await stream()
    await js().publish(`${name}.a`, '', {})
    for await (const _ of follow(js(), name, [`${name}.>`], new AbortController().signal)) break
    while ((await js().admin.streams.info(name)).state.consumer_count > 0);
  })

  it('fails where there is no stream', async () => {
    const following = follow(js(), 'NONE', ['x'], new AbortController().signal)
    await expect(following.next()).rejects.toThrow('stream not found')
  })
})
