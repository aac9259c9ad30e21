export { describeContainerRuntime } from './describe-container-runtime.js';
export { toShellScript } from './shell-behaviour.js';
export type { Behaviour, BehaviourStep } from './behaviour.js';
export type { RuntimeHarness, RuntimeMachine } from './harness.js';
