export { at } from './at.ts'
export { At } from './resource.ts'
