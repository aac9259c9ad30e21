import { containsNetwork, type IpNetwork } from '@cloudless/api';

/**
 * Returns the networks that no other of these networks contains, without repetitions: the same
 * addresses, each in one network. Two networks either are disjoint, or one contains the other.
 */
export function selectOutermost(networks: readonly IpNetwork[]): readonly IpNetwork[] {
  const outermost: IpNetwork[] = [];
  for (const network of [...networks].sort((a, b) => a.prefixLength - b.prefixLength))
    if (!outermost.some((outer) => containsNetwork(outer, network))) outermost.push(network);
  return outermost;
}
