/** A wire between agent and server that a test holds: it acts on the bytes that pass, never on the clock. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class Wire {
  private readonly sockets = new Set<Socket>();
  private readonly held = new Set<Socket>();
  private upstreamBytes = 0;
  private constructor(
    private readonly server: Server,
    private limitBytes: number,
  ) {}

  /** A wire to a server's address over which about so many bytes of agents pass, and then nothing. */
  static async to(address: string, limitBytes: number): Promise<Wire> {
    const [host, port] = address.split(":") as [string, string];
    const server = createServer();
    const wire = new Wire(server, limitBytes);
    server.on("connection", (agent) => wire.join(agent, connect(Number(port), host)));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return wire;
  }

  /** Where agents connect to. */
  get address(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Lets bytes pass up to this number in all. */
  allow(limitBytes: number): void {
    this.limitBytes = limitBytes;
    for (const agent of this.held) agent.resume();
    this.held.clear();
  }

  /** Cuts what is left of it. */
  close(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  private join(agent: Socket, server: Socket): void {
    for (const [from, to] of [[agent, server], [server, agent]] as const) {
      this.sockets.add(from);
      // The other end learns of it by its own end.
      from.on("error", () => to.destroy());
      from.on("close", () => this.sockets.delete(from));
    }
    server.pipe(agent);
    agent.on("end", () => server.end());
    server.on("drain", () => {
      if (!this.held.has(agent)) agent.resume();
    });
    agent.on("data", (bytes: Buffer) => {
      this.upstreamBytes += bytes.length;
      if (this.upstreamBytes >= this.limitBytes) this.held.add(agent);
      if (!server.write(bytes) || this.held.has(agent)) agent.pause();
    });
  }
}
