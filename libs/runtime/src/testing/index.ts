export { createFakeRuntime } from './create-fake-runtime.js';
export type { FakeRuntime, FakeRuntimeOptions } from './create-fake-runtime.js';
export { FakeMachine } from './fake-machine.js';
export { FakeImages } from './fake-images.js';
export type { FakeImage } from './fake-images.js';
export type { FakeExecHandler, FakeExecResult } from './fake-machine.js';
export { toBehaviourCommand } from './fake-command.js';
