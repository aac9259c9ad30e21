// A module of its own, so that only a restore loads the library of the cluster state.
export { markRestored } from '@cloudless/cluster-state';
