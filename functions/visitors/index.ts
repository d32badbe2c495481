export { VisitorsApp } from './resource.ts'
export { visitors } from './visitors.ts'
