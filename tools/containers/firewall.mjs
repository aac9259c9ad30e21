// The rules that the network plugins made for one network. They take them away with each pod; these
// are for pods that ended otherwise.
import { attempt, run } from './run.mjs';

const nat = (...args) => run('iptables', ['--wait', '-t', 'nat', ...args]);

/**
 * Removes the rules of a network, and the chains that the port mapping plugin shares among networks
 * once nobody uses them.
 */
export function removeRules(network) {
  // no such program, or a kernel without it: no rules
  if (!attempt('iptables', ['--wait', '-t', 'nat', '-S']).ok) return;
  removeWhere((rule) => rule.includes(`name: \\"${network}\\" id:`));
  const shared = ['CNI-HOSTPORT-DNAT', 'CNI-HOSTPORT-MASQ', 'CNI-HOSTPORT-SETMARK'];
  const isUsed = listRules().some((rule) => rule.startsWith('-A CNI-HOSTPORT-DNAT '));
  if (isUsed) return;
  removeWhere((rule) => shared.some((chain) => targetOf(rule) === chain));
  for (const chain of shared) dropChain(chain);
}

const listRules = () => nat('-S').trim().split('\n');
const targetOf = (rule) => / -j (\S+)/.exec(rule)?.[1];

/**
 * Deletes rules by their place in the chain, from the last to the first so that the places stay
 * true; then the chains they led to.
 */
function removeWhere(matches) {
  const places = new Map();
  const found = [];
  for (const rule of listRules().filter((line) => line.startsWith('-A '))) {
    const chain = rule.split(' ')[1];
    const place = (places.get(chain) ?? 0) + 1;
    places.set(chain, place);
    if (matches(rule)) found.push({ chain, place, target: targetOf(rule) });
  }
  for (const { chain, place } of found.toReversed()) nat('-D', chain, String(place));
  // Chains of one pod each; those that are shared have their own rule above.
  for (const { target } of found)
    if (/^CNI-(DN-)?[0-9a-f]{10,}$/.test(target ?? '')) dropChain(target);
}

function dropChain(chain) {
  if (!attempt('iptables', ['--wait', '-t', 'nat', '-F', chain]).ok) return; // not there
  nat('-X', chain);
}
