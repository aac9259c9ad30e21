// Proves that the set-up works: a pod from nginx:alpine has an address and answers HTTP.
import { randomUUID } from 'node:crypto';
import { callCri } from './cri.mjs';
import { registryAnswers } from './processes.mjs';
import { until } from './run.mjs';
import { SetupError } from './settings.mjs';

const IMAGE = 'nginx:alpine';

/**
 * Runs one pod, asks it, and takes it away again. Without the registry the image that is there
 * already is used.
 * @returns the address of the pod and what it answered.
 * @throws {@link SetupError} with what the runtime said.
 */
export async function checkPods(settings, say) {
  const call = (method, message) => callCri(settings.socket, method, message);
  const uid = randomUUID();
  const sandboxConfig = {
    metadata: { name: 'check', uid, namespace: 'cloudless-containers' },
    hostname: 'check',
  };
  const pulled = await registryAnswers(settings);
  let podSandboxId;
  try {
    if (pulled) await call('PullImage', { image: { image: IMAGE } });
    ({ podSandboxId } = await call('RunPodSandbox', { config: sandboxConfig }));
    const config = { metadata: { name: 'web' }, image: { image: IMAGE } };
    const { containerId } = await call('CreateContainer', { podSandboxId, config, sandboxConfig });
    await call('StartContainer', { containerId });
    const { ip } = (await call('PodSandboxStatus', { podSandboxId })).status.network;
    say(`a pod from ${IMAGE} runs and has the address ${ip}`);
    const answer = await until(`the pod answers on http://${ip}/`, () => ask(`http://${ip}/`));
    return { pulled, address: ip, answer: answer.split('\n')[0] };
  } catch (reason) {
    throw new SetupError(`the check failed: ${reason.message}`);
  } finally {
    if (podSandboxId !== undefined) await removePod(settings.socket, podSandboxId);
  }
}

/** Ends what runs in a pod, gives its address back, and forgets it. */
export async function removePod(socket, podSandboxId) {
  await callCri(socket, 'StopPodSandbox', { podSandboxId });
  await callCri(socket, 'RemovePodSandbox', { podSandboxId });
}

async function ask(url) {
  try {
    const answer = await fetch(url);
    return answer.ok ? await answer.text() : undefined;
  } catch {
    return undefined; // not listening yet
  }
}
