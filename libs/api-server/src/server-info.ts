import { create } from '@bufbuild/protobuf';
import { ServerInfoSchema, type ServerInfo } from '@cloudless/api';
import { describeCoordinators } from './session/known-coordinators.js';
import { PROTOCOL_MAX, PROTOCOL_MIN } from './session/node-admission.js';
import type { ReadDeps } from './ports.js';

/** Creates the response of GetServerInfo. */
export function createServerInfo({
  state,
  version,
  coordinatorId = '',
}: Pick<ReadDeps, 'state' | 'version' | 'coordinatorId'>): ServerInfo {
  const leader = state.leader();
  return create(ServerInfoSchema, {
    version,
    clusterId: state.clusterId,
    epoch: state.epoch,
    revision: state.view().revision,
    protocolMin: PROTOCOL_MIN,
    protocolMax: PROTOCOL_MAX,
    coordinatorId,
    ...(leader === undefined ? {} : { leader }),
    coordinators: describeCoordinators(state.view()),
  });
}
