export { composite } from './composite.ts'
export { decorators } from './decorator.ts'
export { metacontroller } from './metacontroller.ts'
