import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { rooms } from '../../oxlint.config.ts'
import packageJson from '../../package.json' with { type: 'json' }
import { architecturePage, PAGE, PICTURE, roomOf, stepsOf, withImports } from './architecture.ts'
import { drawing, layersOf } from './drawing.ts'

const DOORS: Record<string, string> = packageJson.imports

/** The rooms that each room may import; cli/, which has no rule, may import all. */
export const mayImport: ReadonlyMap<string, readonly string[]> = new Map([
  ...Object.entries(rooms).map(([room, doors]) => [room, doors.map(roomOfDoor)] as const),
  ['cli', Object.keys(rooms)] as const,
])

/** A door such as `cloudevents` opens a part of a room, and `fairlead` is what authors import. */
function roomOfDoor(door: string): string {
  if (door === 'fairlead') return 'sdk'
  if (door in rooms) return door
  const target = DOORS[`#${door}`] ?? DOORS[`#${door.split('/')[0]}/*`]
  if (target === undefined) throw new Error(`oxlint.config.ts names #${door}, which package.json does not have`)
  return roomOf(join(target), Object.keys(rooms))
}

export const pictureFromCode = (): string => drawing(stepsOf(architecturePage()), layersOf(mayImport))

if (import.meta.main) {
  writeFileSync(PAGE, withImports(architecturePage(), rooms))
  writeFileSync(PICTURE, pictureFromCode())
}
