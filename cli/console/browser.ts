import { spawn } from 'node:child_process'

const OPENERS: Partial<Record<NodeJS.Platform, [string, ...string[]]>> = {
  darwin: ['open'],
  win32: ['cmd', '/c', 'start', ''],
}

/** Opens the address in a browser, without waiting. A failure is ignored: the user opens the printed address. */
export function openInBrowser(address: string, env: NodeJS.ProcessEnv = process.env): void {
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open']
  const child = spawn(program, [...args, address], { stdio: 'ignore', detached: true, env })
  child.once('error', () => undefined)
  child.unref()
}
