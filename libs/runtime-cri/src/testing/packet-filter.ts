import { confirmPacketFilter } from '../egress/confirm-packet-filter.js';
import { readMachineFeatures } from '../system/machine-features.js';

const { packetFilter } = await confirmPacketFilter(readMachineFeatures());

/** Reason why tests cannot set packet filters; undefined when they can. */
export const FILTER_SKIP_REASON = packetFilter
  ? undefined
  : 'needs root, nft, nsenter, unshare and a kernel with nf_tables';
