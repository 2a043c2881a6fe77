// The client of the language server: starts `python -m shapescript lsp`, and runs programs in a terminal.

import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

let client: LanguageClient | undefined;

/** The Python that has shapescript: the setting, the Python extension's choice, or what is on the path. */
async function pythonOf(resource: vscode.Uri | undefined): Promise<string> {
  const chosen = vscode.workspace.getConfiguration("shapescript", resource).get<string>("python");
  if (chosen) {
    return chosen;
  }
  const extension = vscode.extensions.getExtension("ms-python.python");
  if (extension) {
    const api = await extension.activate();
    const environment = api?.environments?.getActiveEnvironmentPath?.(resource);
    if (environment?.path) {
      return environment.path;
    }
  }
  return process.platform === "win32" ? "python" : "python3";
}

async function start(): Promise<void> {
  const command = await pythonOf(vscode.window.activeTextEditor?.document.uri);
  const server: ServerOptions = { command, args: ["-m", "shapescript", "lsp", "--stdio"] };
  const options: LanguageClientOptions = {
    documentSelector: [
      { language: "shapescript", scheme: "file" },
      { language: "shapescript", scheme: "untitled" },
    ],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.ss") },
  };
  client = new LanguageClient("shapescript", "ShapeScript", server, options);
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const choice = await vscode.window.showErrorMessage(
      `ShapeScript's language server didn't start with \`${command}\`. Is shapescript installed there? (${error})`,
      "Choose another Python",
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "shapescript.python");
    }
  }
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  await running?.stop();
}

/** Runs a command on the open program in a terminal, as a person would type it. */
async function inTerminal(command: string): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (document?.languageId !== "shapescript") {
    return;
  }
  await document.save();
  const terminal =
    vscode.window.terminals.find((each) => each.name === "ShapeScript") ?? vscode.window.createTerminal("ShapeScript");
  const quoted = (text: string) => (process.platform === "win32" ? `"${text}"` : `'${text.replace(/'/g, "'\\''")}'`);
  terminal.show(true);
  terminal.sendText(`${quoted(await pythonOf(document.uri))} -m shapescript ${command} ${quoted(document.fileName)}`);
}

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.commands.registerCommand("shapescript.restart", async () => {
      await stop();
      await start();
    }),
    vscode.commands.registerCommand("shapescript.run", () => inTerminal("run")),
    vscode.commands.registerCommand("shapescript.plan", () => inTerminal("plan")),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("shapescript.python")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

export function deactivate(): Promise<void> {
  return stop();
}
