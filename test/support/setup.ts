import { controlPlaneBinaries, ensureBinaries, natsBinaries, progressOn } from '#local'

/** Once per run, so that no test file waits, unseen, for a build. */
export default async function setup(): Promise<void> {
  await ensureBinaries([...natsBinaries, ...controlPlaneBinaries], progressOn(process.stderr))
}
