import { randomUUID } from 'node:crypto'
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { formatIdentity, type Identity, identify, isAlive, parseIdentity } from './identity.ts'

/**
 * Runs `work` while no other process holds `file`. It takes over the lock of a dead holder. Two processes that do so at
 * the same moment may both run, so the work must be safe to run twice; the lock only saves repeated work.
 */
export async function withLock<T>(
  file: string,
  onWait: (holder: Identity) => void,
  work: () => Promise<T>,
): Promise<T> {
  await acquire(file, onWait)
  try {
    return await work()
  } finally {
    rmSync(file, { force: true })
  }
}

async function acquire(file: string, onWait: (holder: Identity) => void): Promise<void> {
  const me = identify(process.pid)
  if (!me) throw new Error(`cannot lock ${file}: this system does not report when process ${process.pid} started`)
  const claim = `${file}.${randomUUID()}`
  writeFileSync(claim, formatIdentity(me))
  try {
    for (let told = false; !tryLink(claim, file); told = true) {
      const holder = holderOf(file)
      if (!holder || !isAlive(holder)) rmSync(file, { force: true })
      else {
        if (!told) onWait(holder)
        await sleep(200)
      }
    }
  } finally {
    rmSync(claim, { force: true })
  }
}

function tryLink(claim: string, file: string): boolean {
  try {
    linkSync(claim, file)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function holderOf(file: string): Identity | undefined {
  try {
    return parseIdentity(readFileSync(file, 'utf8'))
  } catch {
    return undefined
  }
}
