import type { EgressRule } from '@cloudless/runtime';
import type { MachineFeatures } from '../system/machine-features.js';
import { runTool } from '../system/run-tool.js';
import { toFilterText } from './filter-text.js';

/** Rules of each form. */
const SAMPLE_RULES: readonly EgressRule[] = [
  { network: '192.0.2.0/24' },
  { network: '2001:db8::/32' },
  ...['198.51.100.0/24', '2001:db8:1::1/128'].map((network) => ({
    network,
    ports: [
      { protocol: 'tcp' as const, first: 80, last: 80 },
      { protocol: 'tcp' as const, first: 8000, last: 8100 },
      { protocol: 'udp' as const, first: 443, last: 443 },
    ],
  })),
];

/** True when the kernel has accepted a filter: it will accept filters until the machine reboots. */
let isAccepted = false;

/**
 * Withdraws `packetFilter` when the kernel refuses a filter with rules of each form, for example
 * because it has no connection tracking. The filter is set in a new network, which ends at once.
 */
export async function confirmPacketFilter(features: MachineFeatures): Promise<MachineFeatures> {
  if (!features.packetFilter || isAccepted) return features;
  const text = toFilterText(SAMPLE_RULES, ['192.0.2.53', '2001:db8::53']);
  isAccepted = await runTool('unshare', ['--net', 'nft', '-f', '-'], text).then(
    () => true,
    () => false,
  );
  return { ...features, packetFilter: isAccepted };
}
