import {
  chooseNode,
  controlPlaneBinaries,
  ensureBinaries,
  kwokBinaries,
  natsBinaries,
  nodeBinaries,
  progressOn,
} from '#local'
import { goProgram } from './go-program.ts'

/** Once per run, so that no test file waits, unseen, for a build. */
export default async function setup(): Promise<void> {
  const progress = progressOn(process.stderr)
  const { kind } = await chooseNode('auto', progress)
  const ofNode = kind === 'real' ? nodeBinaries : []
  await ensureBinaries([...natsBinaries, ...controlPlaneBinaries, ...kwokBinaries, ...ofNode], progress)
  await goProgram('cloudevents')
}
