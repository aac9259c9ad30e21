// The check command: a pod from nginx:alpine gets an address and answers HTTP.
import { randomUUID } from 'node:crypto';
import { callCri } from './cri.mjs';
import { isRegistryReady } from './processes.mjs';
import { waitFor } from './run.mjs';
import { SetupError } from './settings.mjs';

const IMAGE = 'nginx:alpine';

/**
 * Runs one pod, requests a page from it, and removes the pod. When the registry does not run, the
 * check uses the image that containerd has.
 * @param say - Prints a line of progress.
 * @returns `pulled` (true when the image was pulled), the address of the pod, and the first line of
 *   the page.
 * @throws {@link SetupError} with the error of the runtime.
 */
export async function checkPods(settings, say) {
  const call = (method, message) => callCri(settings.socket, method, message);
  const uid = randomUUID();
  const sandboxConfig = {
    metadata: { name: 'check', uid, namespace: 'cloudless-containers' },
    hostname: 'check',
  };
  const pulled = await isRegistryReady(settings);
  let podSandboxId;
  try {
    if (pulled) await call('PullImage', { image: { image: IMAGE } });
    ({ podSandboxId } = await call('RunPodSandbox', { config: sandboxConfig }));
    const config = { metadata: { name: 'web' }, image: { image: IMAGE } };
    const { containerId } = await call('CreateContainer', { podSandboxId, config, sandboxConfig });
    await call('StartContainer', { containerId });
    const { ip } = (await call('PodSandboxStatus', { podSandboxId })).status.network;
    say(`a pod from ${IMAGE} runs and has the address ${ip}`);
    const answer = await waitFor(`the pod answers on http://${ip}/`, () =>
      fetchPage(`http://${ip}/`),
    );
    return { pulled, address: ip, answer: answer.split('\n')[0] };
  } catch (reason) {
    throw new SetupError(`the check failed: ${reason.message}`);
  } finally {
    if (podSandboxId !== undefined) await removePod(settings.socket, podSandboxId);
  }
}

/** Stops the containers of a pod, releases its address, and removes the pod. */
export async function removePod(socket, podSandboxId) {
  await callCri(socket, 'StopPodSandbox', { podSandboxId });
  await callCri(socket, 'RemovePodSandbox', { podSandboxId });
}

/** Returns the page at a URL; undefined while the server does not answer. */
async function fetchPage(url) {
  try {
    const response = await fetch(url);
    return response.ok ? await response.text() : undefined;
  } catch {
    return undefined; // not listening yet
  }
}
