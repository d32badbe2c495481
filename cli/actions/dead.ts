import type { DeadLetter } from '#events'
import { EXIT, UsageError } from '#host/exit'
import { type DeadFilter, type ReplayTools, replay, selectLetters, withExistingStreams } from '#inspect'
import { type DeadLsOptions, describeLetter, listDead } from '../dead/letters.ts'
import type { CommandContext } from '../options.ts'

export const ls = (options: DeadLsOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ dead }) => context.print(await listDead(dead, options, new Date())))

export const show = (id: number, output: 'text' | 'json', context: CommandContext): Promise<void> =>
  withExistingStreams(context, async (tools) =>
    context.print(describeLetter(await letterOf(tools, id), output, new Date())),
  )

/** Replays the letters with these numbers, or all that the filter selects. */
export const replayLetters = (which: number[] | DeadFilter, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async (tools) => {
    let isDone = true
    const letters = Array.isArray(which) ? lettersOf(tools, which) : selectLetters(tools.dead, which)
    for await (const letter of letters) {
      const { done, text } = await replay(letter, tools)
      context.print(text)
      isDone &&= done
    }
    if (!isDone) context.setExitCode(EXIT.failed)
  })

async function* lettersOf(tools: ReplayTools, ids: readonly number[]): AsyncGenerator<DeadLetter> {
  for (const id of ids) yield await letterOf(tools, id)
}

async function letterOf({ dead }: ReplayTools, id: number): Promise<DeadLetter> {
  const letter = await dead.get(id)
  if (letter === undefined) throw new UsageError(`there is no ${id} in ${dead.stream}: fairlead dead ls`)
  return letter
}
