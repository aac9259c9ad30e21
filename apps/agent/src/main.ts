/**
 * File names, without extension, of the commands that only the agent itself starts; the files are
 * beside this module. A process reads only the code of its command: a restarted network proxy must
 * serve within a fraction of a second, and the code of the agent is four times that of the proxy.
 */
const OWN_BUNDLES: ReadonlyMap<string, string> = new Map([
  ['supervisor', 'supervisor-command'],
  ['network-proxy', 'network-proxy-command'],
]);

const name = OWN_BUNDLES.get(process.argv[2] ?? '') ?? 'agent-command';
const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'mjs';
await import(new URL(`./${name}.${extension}`, import.meta.url).href);
