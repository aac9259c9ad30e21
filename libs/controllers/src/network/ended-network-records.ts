import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { ClusterView, RecordKind, Stored } from '@cloudless/cluster-state';
import { ADDRESS_HOLD_MS } from '@cloudless/network';

/** A record of the network to delete. */
export interface EndedNetworkRecord {
  readonly kind: RecordKind;
  readonly id: string;
  readonly unchangedSince: Stored<unknown>;
}

/**
 * Lists the records of virtual addresses that may be assigned again, and of endpoints outside the
 * cluster whose service was deleted.
 * @param nowMs - Wall-clock milliseconds.
 */
export function listEndedNetworkRecords(
  view: ClusterView,
  nowMs: number,
): readonly EndedNetworkRecord[] {
  const addresses = [...view.serviceAddresses()]
    .filter(
      ([, { value }]) =>
        value.releasedAt !== undefined && nowMs - timestampMs(value.releasedAt) >= ADDRESS_HOLD_MS,
    )
    .map(([id, read]): EndedNetworkRecord => ({ kind: 'serviceip', id, unchangedSince: read }));
  const endpoints = [...view.externalEndpoints()]
    .filter(([id, { value }]) => {
      const service = view.service(id.slice(0, id.lastIndexOf('/')));
      return service?.value.uid !== value.serviceUid;
    })
    .map(([id, read]): EndedNetworkRecord => ({ kind: 'endpoint', id, unchangedSince: read }));
  return [...addresses, ...endpoints];
}
