import { createHash } from 'node:crypto'
import { type ObservedBy, Pod, TerminalError } from '#sdk'

type PodObject = ObservedBy<typeof Pod>

const podName = (at: string): string => `${shorten(at, LONGEST_NAME - '-pod'.length)}-pod`

/** Throws a TerminalError for a command that no container could start. */
export function podFor(at: string, command: string | undefined): PodObject {
  return Pod.of({
    metadata: { name: podName(at), labels: { app: shorten(at, LONGEST_LABEL) } },
    spec: {
      containers: [{ name: 'busybox', image: 'busybox', command: words(command) }],
      restartPolicy: 'OnFailure',
    },
  })
}

function words(command: string | undefined): string[] {
  if (command === undefined) throw invalidCommand('spec.command is missing')
  const split = command.split(' ')
  if (split[0] === '') throw invalidCommand(`spec.command is ${JSON.stringify(command)}: its first word is empty`)
  return split
}

const invalidCommand = (what: string): TerminalError =>
  new TerminalError(`${what}: give a program and its arguments, such as echo YAY`, { reason: 'InvalidCommand' })

const LONGEST_NAME = 253
const LONGEST_LABEL = 63
const HASH_LENGTH = 10

/** Names within the limit stay as they are; longer ones are cut and told apart by a hash of the whole. */
function shorten(name: string, limit: number): string {
  if (name.length <= limit) return name
  const hash = createHash('sha256').update(name).digest('hex').slice(0, HASH_LENGTH)
  const head = name.slice(0, limit - HASH_LENGTH - 1).replace(/[-.]+$/, '')
  return `${head}-${hash}`
}
