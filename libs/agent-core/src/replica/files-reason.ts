import { FILES_REASON } from '../files/files-access.js';
import type { ReplicaState } from './replica-state.js';

/**
 * Shows why the files of a running replica are outdated, unless the replica has another reason.
 * @param reason - Empty when the files are up to date.
 */
export function withFilesReason(state: ReplicaState, reason: string): ReplicaState {
  const isReplaceable = state.reason === '' || state.reason.startsWith(FILES_REASON);
  return state.activity.kind === 'running' && isReplaceable && state.reason !== reason
    ? { ...state, reason }
    : state;
}
