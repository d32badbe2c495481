import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { ProcessGroup, type ProcessSpec } from '#lab'

const sleeper: ProcessSpec = { name: 'sleeper', command: '/bin/sleep', args: ['600'] }
const shell = (name: string, script: string): ProcessSpec => ({ name, command: '/bin/sh', args: ['-c', script] })

describe('processes of a folder', () => {
  let dir: string
  let group: ProcessGroup
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'fl-processes-'))
    group = new ProcessGroup(dir)
  })
  afterEach(async () => {
    await group.stopAll()
    await rm(dir, { recursive: true })
  })

  it('are found and stopped by a process that did not start them, even when the one that did was killed', async () => {
    const door = new URL('../../packages/lab/index.ts', import.meta.url)
    const script = `
      const { ProcessGroup } = await import(${JSON.stringify(door.href)})
      await new ProcessGroup(${JSON.stringify(dir)}).start(${JSON.stringify(sleeper)})
      process.kill(process.pid, 'SIGKILL')`
    const starter = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' })
    const signal = await new Promise((resolve) => starter.once('exit', (_code, by) => resolve(by)))
    expect(signal).toBe('SIGKILL')
    const left = group.get('sleeper')!
    expect(left.alive()).toBe(true)
    await group.stopAll()
    expect(left.alive()).toBe(false)
    expect(group.names()).toEqual([])
  })

  it('keep nothing open that their starter has inherited, so that who waits for its end does not wait for theirs', async () => {
    const door = new URL('../../packages/lab/index.ts', import.meta.url)
    const script = `
      const { ProcessGroup } = await import(${JSON.stringify(door.href)})
      await new ProcessGroup(${JSON.stringify(dir)}).start(${JSON.stringify(sleeper)})`
    // As bash does it for \`2> >(cat)\`: far behind the descriptors that Node.js closes by itself.
    const descriptor = 63
    const stdio = Array.from<'ignore' | 'inherit' | 'pipe'>({ length: descriptor }).fill('ignore')
    const starter = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: [...stdio.with(2, 'inherit'), 'pipe'],
    })
    const inherited = (starter.stdio as (Readable | null)[])[descriptor]!
    const [[code]] = await Promise.all([once(starter, 'exit'), once(inherited.resume(), 'end')])
    expect(code).toBe(0)
    expect(group.get('sleeper')!.alive()).toBe(true)
  })

  it('are never confused with a stranger that has the pid of one that is gone', async () => {
    await group.start(sleeper)
    const { pid } = group.get('sleeper')!
    const registered = await readFile(join(dir, 'pid', 'sleeper'), 'utf8')
    await writeFile(join(dir, 'pid', 'sleeper'), `${pid} 1`)
    expect(group.get('sleeper')!.alive()).toBe(false)
    await group.stop('sleeper')
    await writeFile(join(dir, 'pid', 'sleeper'), registered)
    expect(group.get('sleeper')!.alive()).toBe(true)
    await group.stop('sleeper')
  })

  it('are neither started nor waited for once their start is given up', async () => {
    const given = new AbortController()
    const own = new ProcessGroup(dir, given.signal)
    const waiting = own.waitFor('what never comes', async () => false, 60_000)
    given.abort(new Error('not wanted any more'))
    await expect(waiting).rejects.toThrow('not wanted any more')
    await expect(own.start(sleeper)).rejects.toThrow('not wanted any more')
    expect(own.names()).toEqual([])
  })

  it('are started again as they were first', async () => {
    const counter = join(dir, 'count')
    await group.start(shell('counter', `echo x >>${counter}; exec sleep 600`))
    await group.waitFor('the first line', async () => (await readIfThere(counter)) === 'x\n', 10_000)
    const first = group.get('counter')!
    const second = await group.restart('counter')
    await group.waitFor('the second line', async () => (await readIfThere(counter)) === 'x\nx\n', 10_000)
    expect(first.alive()).toBe(false)
    expect(second.alive()).toBe(true)
  })

  it('stop when they ignore SIGTERM, or are frozen', async () => {
    const ready = join(dir, 'ready')
    await group.start(shell('stubborn', `trap '' TERM; echo yes >${ready}; while :; do sleep 1; done`))
    await group.start({ ...sleeper, name: 'frozen' })
    await group.waitFor('the trap', async () => (await readIfThere(ready)) === 'yes\n', 10_000)
    group.signal('frozen', 'SIGSTOP')
    const both = [group.get('stubborn')!, group.get('frozen')!]
    await Promise.all([group.stop('stubborn', 'SIGTERM', 100), group.stop('frozen')])
    expect(both.map((found) => found.alive())).toEqual([false, false])
  })

  it('say what they wrote last when they die while somebody waits for them', async () => {
    await group.start(shell('broken', 'echo the disk is full; exit 1'))
    await expect(group.waitFor('broken to serve', async () => false, 10_000)).rejects.toThrow(
      /broken died while waiting for broken to serve[^]*the disk is full/,
    )
  })

  it('say so when there is no such program', async () => {
    await expect(group.start({ ...sleeper, command: '/no/such/sleep' })).rejects.toThrow(
      'sleeper cannot be started: /no/such/sleep is not an executable file',
    )
  })
})

async function readIfThere(file: string): Promise<string> {
  return readFile(file, 'utf8').catch(() => '')
}
