import { callCri, fetchText } from './containers.js';

/** Images of the other owner: the image of its container, and an image that is only stored. */
const [USED_IMAGE, STORED_IMAGE] = ['cloudless/test:2', 'busybox:latest'];

interface PodStatus {
  readonly status: { readonly state: number; readonly network: { readonly ip: string } };
}

/** A pod of another owner on the same container runtime, such as a kubelet would run. */
export class ForeignPod {
  private constructor(
    private readonly socket: string,
    readonly sandboxId: string,
    private readonly containerId: string,
  ) {}

  /** Starts the pod. The tests never remove it; the removal of the runtime does. */
  static async start(socket: string): Promise<ForeignPod> {
    const callRuntime = <Answer>(method: string, message: object): Promise<Answer> =>
      callCri<Answer>(socket, method, message);
    for (const image of [USED_IMAGE, STORED_IMAGE])
      await callRuntime('PullImage', { image: { image } });
    const sandboxConfig = {
      metadata: { name: 'foreign', uid: 'foreign', namespace: 'others' },
      hostname: 'foreign',
    };
    const { podSandboxId } = await callRuntime<{ podSandboxId: string }>('RunPodSandbox', {
      config: sandboxConfig,
    });
    const config = { metadata: { name: 'foreign' }, image: { image: USED_IMAGE } };
    const { containerId } = await callRuntime<{ containerId: string }>('CreateContainer', {
      podSandboxId,
      config,
      sandboxConfig,
    });
    await callRuntime('StartContainer', { containerId });
    const pod = new ForeignPod(socket, podSandboxId, containerId);
    await pod.expectUntouched();
    return pod;
  }

  /** Expects that the same pod still runs and that its images exist. */
  async expectUntouched(): Promise<void> {
    const { status } = await callCri<PodStatus>(this.socket, 'PodSandboxStatus', {
      podSandboxId: this.sandboxId,
    });
    expect(status.state).toBe(READY);
    const { containers } = await callCri<{ containers: readonly { id: string; state: number }[] }>(
      this.socket,
      'ListContainers',
      {},
    );
    expect(containers.find(({ id }) => id === this.containerId)?.state).toBe(RUNNING);
    expect((await fetchText(`http://${status.network.ip}:8080/version`)).trim()).toBe('2');
    for (const image of [USED_IMAGE, STORED_IMAGE]) {
      const imageStatus = await callCri<{ image?: { id: string } }>(this.socket, 'ImageStatus', {
        image: { image },
      });
      expect({ image, id: imageStatus.image?.id }).toEqual({
        image,
        id: expect.stringMatching(/^sha256:/) as string,
      });
    }
  }
}
/** States of the CRI API: PodSandboxState.SANDBOX_READY, ContainerState.CONTAINER_RUNNING. */
const READY = 0;
const RUNNING = 1;
